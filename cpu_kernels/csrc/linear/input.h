// Activations as a product reads them: rounded once per call, for all weights that want the same rounding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa.h"

namespace qk::linear {

class InputFormat {
public:
    virtual ~InputFormat() = default;

    // Bytes of one prepared token; tokens follow each other.
    virtual size_t token_bytes() const = 0;

    // x [K] float32 -> token_bytes() at out (64-byte aligned where the token before ends there).
    // shared: the result of share_of over all tokens of the call, the largest of them.
    virtual void prepare(const float* x, std::byte* out, float shared, Isa isa) const = 0;

    // The share of a token in a value that all tokens of a call share (per-tensor scales): its absmax, NaN winning.
    virtual bool shares() const { return false; }
    virtual float share_of(const float*, Isa) const { return 0; }

    // Whether this one's prepared input may be read in place of the other's.
    virtual bool equals(const InputFormat& other) const = 0;
};

// The prepared tokens of a call.
struct Input {
    const std::byte* tokens;
    size_t token_bytes;
    int64_t num_tokens;
};

// 32 activations: x ~= scale * codes, codes in [-127, 127]; scale is NaN if one of them is NaN or infinite.
// The input of every weight that is made of blocks or groups. Formats whose codes have a sign are stored with 128
// added, as vpdpbusd wants one operand unsigned; `offset` starts an accumulator that takes it off again.
struct alignas(64) ActivationBlock {
    static constexpr int size = 32;

    int8_t codes[size];
    float scale;
    float scaled_sum;          // scale * sum(codes): the factor of a weight's minimum
    float scaled_sum_half[2];  // the same of codes 0 to 15 and of 16 to 31
    int32_t offset;            // -128 * sum(codes)
    int32_t offset_half[2];
};
static_assert(sizeof(ActivationBlock) == 64);

}  // namespace qk::linear
