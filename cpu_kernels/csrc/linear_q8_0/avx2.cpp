#include <algorithm>
#include <limits>

#include "linear_q8_0/linear_q8_0.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace qk::linear_q8_0::avx2 {

static uint32_t reduce_max(__m256i value) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

static int32_t reduce_add(__m256i value) {
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(sum);
}

void quantize_row(const float* x, int64_t num_blocks, ActivationBlock* out) {
    const __m256i abs_mask = _mm256_set1_epi32(0x7fffffff);
    for (int64_t i_block = 0; i_block < num_blocks; i_block++, x += block_size, out++) {
        __m256 part[4];
        __m256i absmax8 = _mm256_setzero_si256();  // absolute floats order like their bits, NaN last
        for (int i = 0; i < 4; i++) {
            part[i] = _mm256_loadu_ps(x + i * 8);
            absmax8 = _mm256_max_epu32(absmax8, _mm256_and_si256(_mm256_castps_si256(part[i]), abs_mask));
        }
        const uint32_t absmax_bits = reduce_max(absmax8);
        const float absmax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(absmax_bits))));
        const bool finite = absmax_bits < infinity_bits;
        const bool zero = !finite || absmax < smallest_absmax;
        const __m256 inverse = _mm256_set1_ps(zero ? 0.0f : 127.0f / absmax);
        const __m256i keep = _mm256_set1_epi32(zero ? 0 : -1);
        __m256i q[4];
        for (int i = 0; i < 4; i++) q[i] = _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(part[i], inverse)), keep);
        // The packs work in 128-bit halves; the permutation puts groups of four back in order.
        const __m256i q16_low = _mm256_packs_epi32(q[0], q[1]), q16_high = _mm256_packs_epi32(q[2], q[3]);
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        const __m256i q8 = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(q16_low, q16_high), order);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out->codes), q8);
        out->scale = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : absmax / 127.0f;
        out->offset = -128 * reduce_add(_mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3])));
    }
}

// 3 tokens x 2 half panels: 6 int32 and 6 float accumulators, the constant 1s and 3 temporaries = 16 registers.
constexpr int tile_tokens = 3;
constexpr int halves = 2;  // of a panel: 8 output rows a register

// Without VNNI: vpmaddubsw adds two u8 x s8 products in 16 bits and saturates, which 255 * 127 * 2 would do. So the
// codes go back to int8 and the sign moves to the activation: |q| * sign(x, q), at most 128 * 127 * 2 = 32512.
template <int tokens>
static void multiply_tile(const PackedWeight& weight, int64_t panel, const Activations& activations, int64_t token) {
    const int64_t num_blocks = weight.num_blocks;
    const uint8_t* codes = weight.codes(panel);
    const uint16_t* scales = weight.scales(panel);
    const ActivationBlock* x = activations.x + token * num_blocks;
    const __m256i top_bits = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);

    __m256 y[tokens][halves];
    for (auto& row : y)
        for (auto& value : row) value = _mm256_setzero_ps();

    for (int64_t i_block = 0; i_block < num_blocks; i_block++, x++) {
        __m256i dot[tokens][halves];
        for (auto& row : dot)
            for (auto& value : row) value = _mm256_setzero_si256();
        for (int group = 0; group < block_size / 4; group++, codes += PackedWeight::group_bytes) {
            for (int h = 0; h < halves; h++) {
                const __m256i q = _mm256_xor_si256(
                    _mm256_load_si256(reinterpret_cast<const __m256i*>(codes + h * 32)), top_bits);
                const __m256i abs_q = _mm256_abs_epi8(q);
                for (int m = 0; m < tokens; m++) {
                    int32_t four_codes;
                    __builtin_memcpy(&four_codes, x[m * num_blocks].codes + group * 4, 4);
                    const __m256i signed_x = _mm256_sign_epi8(_mm256_set1_epi32(four_codes), q);
                    const __m256i pairs = _mm256_maddubs_epi16(abs_q, signed_x);
                    dot[m][h] = _mm256_add_epi32(dot[m][h], _mm256_madd_epi16(pairs, ones));
                }
            }
        }
        for (int h = 0; h < halves; h++, scales += panel_rows / halves) {
            const __m256 weight_scale =
                _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(scales)));
            for (int m = 0; m < tokens; m++) {
                const __m256 scale = _mm256_mul_ps(weight_scale, _mm256_set1_ps(x[m * num_blocks].scale));
                y[m][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[m][h]), scale, y[m][h]);
            }
        }
    }
    const int64_t first_row = panel * panel_rows;
    const int64_t num_rows = std::min<int64_t>(panel_rows, weight.num_rows - first_row);
    for (int m = 0; m < tokens; m++) {
        float row[panel_rows];
        for (int h = 0; h < halves; h++) _mm256_storeu_ps(row + h * 8, y[m][h]);
        std::copy_n(row, num_rows, activations.y + (token + m) * activations.y_stride + first_row);
    }
}

Isa multiply(const PackedWeight& weight, int64_t begin, int64_t end, const Activations& activations) {
    for (int64_t panel = begin; panel < end; panel++) {
        int64_t token = 0;
        for (; token + tile_tokens <= activations.num_tokens; token += tile_tokens)
            multiply_tile<tile_tokens>(weight, panel, activations, token);
        if (activations.num_tokens - token == 2) multiply_tile<2>(weight, panel, activations, token);
        if (activations.num_tokens - token == 1) multiply_tile<1>(weight, panel, activations, token);
    }
    return Isa::avx2;
}

}  // namespace qk::linear_q8_0::avx2

#pragma GCC pop_options
