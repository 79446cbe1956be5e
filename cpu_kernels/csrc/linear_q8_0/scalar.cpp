#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "half.h"
#include "linear_q8_0/linear_q8_0.h"

namespace qk::linear_q8_0::scalar {

void quantize_row(const float* x, int64_t num_blocks, ActivationBlock* out) {
    for (int64_t i_block = 0; i_block < num_blocks; i_block++, x += block_size, out++) {
        uint32_t absmax_bits = 0;  // absolute floats order like their bits, NaN last
        for (int k = 0; k < block_size; k++)
            absmax_bits = std::max(absmax_bits, std::bit_cast<uint32_t>(x[k]) & 0x7fffffffu);
        const float absmax = std::bit_cast<float>(absmax_bits);
        const bool finite = absmax_bits < infinity_bits;
        const bool zero = !finite || absmax < smallest_absmax;
        const float inverse = zero ? 0.0f : 127.0f / absmax;
        int32_t sum = 0;
        for (int k = 0; k < block_size; k++) {
            out->codes[k] = zero ? 0 : static_cast<int8_t>(std::lrint(x[k] * inverse));
            sum += out->codes[k];
        }
        out->scale = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : absmax / 127.0f;
        out->offset = -128 * sum;
    }
}

static void multiply_token(const PackedWeight& weight, int64_t panel, const ActivationBlock* x, float* y) {
    const uint8_t* codes = weight.codes(panel);
    const uint16_t* scales = weight.scales(panel);
    std::fill_n(y, panel_rows, 0.0f);
    for (int64_t i_block = 0; i_block < weight.num_blocks; i_block++, x++) {
        int32_t dot[panel_rows];
        std::fill_n(dot, panel_rows, x->offset);
        for (int group = 0; group < block_size / 4; group++, codes += PackedWeight::group_bytes)
            for (int row = 0; row < panel_rows; row++)
                for (int k = 0; k < 4; k++) dot[row] += codes[row * 4 + k] * x->codes[group * 4 + k];
        for (int row = 0; row < panel_rows; row++, scales++)
            y[row] += static_cast<float>(dot[row]) * (half_to_float(*scales) * x->scale);
    }
}

Isa multiply(const PackedWeight& weight, int64_t begin, int64_t end, const Activations& activations) {
    for (int64_t panel = begin; panel < end; panel++) {
        const int64_t first_row = panel * panel_rows;
        const int64_t num_rows = std::min<int64_t>(panel_rows, weight.num_rows - first_row);
        for (int64_t token = 0; token < activations.num_tokens; token++) {
            float y[panel_rows];
            multiply_token(weight, panel, activations.x + token * weight.num_blocks, y);
            std::copy_n(y, num_rows, activations.y + token * activations.y_stride + first_row);
        }
    }
    return Isa::scalar;
}

}  // namespace qk::linear_q8_0::scalar
