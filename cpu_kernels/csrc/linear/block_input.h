// The activations of weights made of blocks: int8 codes and a scale for each 32 of them.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "linear/input.h"

namespace qk::linear {

// Below this the reciprocal of the scale would overflow, and the block counts as zeros.
inline constexpr float smallest_absmax = 0x1p-119f;
inline constexpr uint32_t infinity_bits = 0x7f800000;  // absmax as bits at or above it: infinite or NaN

// Fills in all of a block but its codes.
//
// sum   of the codes, per half of the block
// zero  the block counts as zeros: absmax is too small, or not finite
inline void finish_block(ActivationBlock& block, const int32_t (&sum)[2], float absmax, bool finite, bool zero) {
    block.scale = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : absmax / 127.0f;
    block.offset = -128 * (sum[0] + sum[1]);
    block.scaled_sum = block.scale * static_cast<float>(sum[0] + sum[1]);
    for (int h = 0; h < 2; h++) {
        block.offset_half[h] = -128 * sum[h];
        block.scaled_sum_half[h] = block.scale * static_cast<float>(sum[h]);
    }
}

// x [num_blocks * 32] float32 -> num_blocks blocks
using RoundRow = void (*)(const float* x, int64_t num_blocks, ActivationBlock* out);

namespace scalar { void round_row(const float* x, int64_t num_blocks, ActivationBlock* out); }
namespace avx2 { void round_row(const float* x, int64_t num_blocks, ActivationBlock* out); }
namespace avx512 { void round_row(const float* x, int64_t num_blocks, ActivationBlock* out); }

class BlockInput final : public RowInput {
public:
    // A last block that row_size does not fill is filled with zeros.
    // order, if not empty: [row_size] which feature of x is the k-th that the weight reads
    explicit BlockInput(int64_t row_size, std::vector<int32_t> order = {});

    size_t token_bytes() const override;
    void prepare_row(const float* x, std::byte* out, float shared, Isa isa) const override;
    bool equals(const InputFormat& other) const override;

    const std::vector<int32_t>& order() const { return order_; }

private:
    int64_t num_blocks() const { return (row_size_ + ActivationBlock::size - 1) / ActivationBlock::size; }

    int64_t row_size_;
    std::vector<int32_t> order_;
};

}  // namespace qk::linear
