// Activations as a product reads them: rounded once per call, for all weights that want the same rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "isa.h"

namespace qk::linear {

class TileRows;

// The prepared tokens of a call.
struct Input {
    const std::byte* tokens;
    size_t
        token_bytes;  // from a token to the next; of tiles, which tile_rows.h draws, from 16 tiles of K to the next 16
    int64_t num_tokens;
};

// Room for one of num_tokens prepared tokens at `tokens`, which is 64-byte aligned.
struct Place {
    std::byte* tokens;
    int64_t num_tokens, token;
};

class InputFormat {
public:
    virtual ~InputFormat() = default;

    // Bytes of num_tokens prepared tokens.
    virtual size_t bytes(int64_t num_tokens) const = 0;
    // `count` of num_tokens prepared tokens, from number `first` on, a multiple of 16, as a product takes them.
    virtual Input view(const std::byte* tokens, int64_t num_tokens, int64_t first, int64_t count) const = 0;

    // x [K] float32 -> a prepared token.
    // shared: the result of share_of over all tokens of the call, the largest of them.
    virtual void prepare(const float* x, const Place& place, float shared, Isa isa) const = 0;

    // Token i of `from` becomes the one at `to`.
    virtual void copy(const Input& from, int64_t i, const Place& to) const = 0;

    // The share of a token in a value that all tokens of a call share (per-tensor scales): its absmax, NaN winning.
    virtual bool shares() const { return false; }
    virtual float share_of(const float*, Isa) const { return 0; }

    // The places of tokens that are nothing but their features in turn as bfloat16, in tiles; null for all others.
    virtual const TileRows* plain_tiles() const { return nullptr; }

    // Whether this one's prepared input may be read in place of the other's.
    virtual bool equals(const InputFormat& other) const = 0;
};

// Prepared tokens that follow each other, each in token_bytes().
class RowInput : public InputFormat {
public:
    virtual size_t token_bytes() const = 0;
    // x [K] float32 -> token_bytes() at out
    virtual void prepare_row(const float* x, std::byte* out, float shared, Isa isa) const = 0;

    size_t bytes(int64_t num_tokens) const final { return static_cast<size_t>(num_tokens) * token_bytes(); }
    Input view(const std::byte* tokens, int64_t, int64_t first, int64_t count) const final {
        return {tokens + first * token_bytes(), token_bytes(), count};
    }
    void prepare(const float* x, const Place& place, float shared, Isa isa) const final {
        prepare_row(x, place.tokens + place.token * token_bytes(), shared, isa);
    }
    void copy(const Input& from, int64_t i, const Place& to) const final {
        std::memcpy(to.tokens + to.token * token_bytes(), from.tokens + i * token_bytes(), token_bytes());
    }
};

// 32 activations: x ~= scale * codes, codes in [-127, 127]; scale is NaN if one of them is NaN or infinite.
// The input of every weight that is made of blocks or groups. Formats whose codes have a sign are stored with 128
// added, as vpdpbusd wants one operand unsigned; `offset` starts an accumulator that takes it off again.
struct alignas(64) ActivationBlock {
    static constexpr int size = 32;

    int8_t codes[size];
    float scale;
    float scaled_sum;  // scale * sum(codes): the factor of a weight's minimum
    float scaled_sum_half[2];  // the same of codes 0 to 15 and of 16 to 31
    int32_t offset;  // -128 * sum(codes)
    int32_t offset_half[2];
};
static_assert(sizeof(ActivationBlock) == 64);

}  // namespace qk::linear
