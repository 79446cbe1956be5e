#include <algorithm>
#include <bit>
#include <cmath>
#include "linear/block_input.h"

namespace qk::linear::scalar {

void round_row(const float* x, int64_t num_blocks, ActivationBlock* out) {
    for (int64_t i_block = 0; i_block < num_blocks; i_block++, x += ActivationBlock::size, out++) {
        uint32_t absmax_bits = 0;  // absolute floats order like their bits, NaN last
        for (int k = 0; k < ActivationBlock::size; k++)
            absmax_bits = std::max(absmax_bits, std::bit_cast<uint32_t>(x[k]) & 0x7fffffffu);
        const float absmax = std::bit_cast<float>(absmax_bits);
        const bool finite = absmax_bits < infinity_bits;
        const bool zero = !finite || absmax < smallest_absmax;
        const float inverse = zero ? 0.0f : 127.0f / absmax;
        int32_t sum[2] = {};
        for (int k = 0; k < ActivationBlock::size; k++) {
            out->codes[k] = zero ? 0 : static_cast<int8_t>(std::lrint(x[k] * inverse));
            sum[k / 16] += out->codes[k];
        }
        finish_block(*out, sum, absmax, finite, zero);
    }
}

}  // namespace qk::linear::scalar
