#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "linear_q8_0/linear_q8_0.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")

namespace qk::linear_q8_0::avx512_vnni {

void quantize_row(const float* x, int64_t num_blocks, ActivationBlock* out) {
    const __m512i abs_mask = _mm512_set1_epi32(0x7fffffff);
    for (int64_t i_block = 0; i_block < num_blocks; i_block++, x += block_size, out++) {
        const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
        const __m512i abs_low = _mm512_and_epi32(_mm512_castps_si512(low), abs_mask);
        const __m512i abs_high = _mm512_and_epi32(_mm512_castps_si512(high), abs_mask);
        // Absolute floats order like their bits, NaN last.
        const uint32_t absmax_bits = _mm512_reduce_max_epu32(_mm512_max_epu32(abs_low, abs_high));
        const float absmax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(absmax_bits))));
        const bool finite = absmax_bits < infinity_bits;
        const bool zero = !finite || absmax < smallest_absmax;
        const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / absmax);
        const __mmask16 keep = zero ? 0 : 0xffff;
        const __m512i q_low = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(low, inverse));
        const __m512i q_high = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(high, inverse));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out->codes), _mm512_cvtepi32_epi8(q_low));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out->codes + 16), _mm512_cvtepi32_epi8(q_high));
        out->scale = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : absmax / 127.0f;
        out->offset = -128 * _mm512_reduce_add_epi32(_mm512_add_epi32(q_low, q_high));
    }
}

// Registers of a tile of 6 tokens x 2 panels: 12 int32 and 12 float accumulators, 2 of weights, 1 activation,
// 2 scales = 29 of 32. Per block of 32 k that is 96 vpdpbusd against 24 multiplies and FMAs on the same two
// ports and 64 loads, so at best 80 % of the vpdpbusd peak.
constexpr int tile_tokens = 6;
constexpr int tile_panels = 2;

// Each output is the same chain of operations in every tile shape: a token's result does not depend on which
// others are in the batch.
template <int tokens, int panels>
static void multiply_tile(const PackedWeight& weight, int64_t panel, const Activations& activations, int64_t token) {
    const int64_t num_blocks = weight.num_blocks;
    const uint8_t* codes = weight.codes(panel);
    const uint16_t* scales = weight.scales(panel);
    const ActivationBlock* x = activations.x + token * num_blocks;
    const int64_t panel_code_bytes = num_blocks * PackedWeight::block_code_bytes;
    const int64_t panel_scales = num_blocks * panel_rows;

    __m512 y[tokens][panels];
    for (auto& row : y)
        for (auto& value : row) value = _mm512_setzero_ps();

    for (int64_t i_block = 0; i_block < num_blocks; i_block++, x++) {
        __m512i dot[tokens][panels];
        for (int m = 0; m < tokens; m++)
            for (int p = 0; p < panels; p++) dot[m][p] = _mm512_set1_epi32(x[m * num_blocks].offset);
#pragma GCC unroll 8
        for (int group = 0; group < block_size / 4; group++, codes += PackedWeight::group_bytes) {
            __m512i w[panels];
            for (int p = 0; p < panels; p++) w[p] = _mm512_load_si512(codes + p * panel_code_bytes);
            for (int m = 0; m < tokens; m++) {
                int32_t four_codes;
                __builtin_memcpy(&four_codes, x[m * num_blocks].codes + group * 4, 4);
                const __m512i b = _mm512_set1_epi32(four_codes);
                for (int p = 0; p < panels; p++) dot[m][p] = _mm512_dpbusd_epi32(dot[m][p], w[p], b);
            }
        }
        __m512 weight_scale[panels];
        for (int p = 0; p < panels; p++)
            weight_scale[p] = _mm512_cvtph_ps(
                _mm256_load_si256(reinterpret_cast<const __m256i*>(scales + p * panel_scales)));
        scales += panel_rows;
        for (int m = 0; m < tokens; m++) {
            const __m512 x_scale = _mm512_set1_ps(x[m * num_blocks].scale);
            for (int p = 0; p < panels; p++)
                y[m][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[m][p]), _mm512_mul_ps(weight_scale[p], x_scale),
                                          y[m][p]);
        }
    }
    for (int p = 0; p < panels; p++) {
        const int64_t first_row = (panel + p) * panel_rows;
        const int64_t num_rows = std::min<int64_t>(panel_rows, weight.num_rows - first_row);
        const __mmask16 mask = static_cast<__mmask16>((1u << num_rows) - 1);
        for (int m = 0; m < tokens; m++)
            _mm512_mask_storeu_ps(activations.y + (token + m) * activations.y_stride + first_row, mask, y[m][p]);
    }
}

using Tile = void (*)(const PackedWeight&, int64_t panel, const Activations&, int64_t token);

template <int panels, int... tokens>
static constexpr std::array<Tile, tile_tokens> tiles_of(std::integer_sequence<int, tokens...>) {
    return {multiply_tile<tokens + 1, panels>...};
}

// tiles[panels - 1][tokens - 1]
static constexpr std::array<std::array<Tile, tile_tokens>, tile_panels> tiles = {
    tiles_of<1>(std::make_integer_sequence<int, tile_tokens>{}),
    tiles_of<2>(std::make_integer_sequence<int, tile_tokens>{}),
};

Isa multiply(const PackedWeight& weight, int64_t begin, int64_t end, const Activations& activations) {
    for (int64_t panel = begin; panel < end; panel += tile_panels) {
        const int64_t panels = std::min<int64_t>(tile_panels, end - panel);
        for (int64_t token = 0; token < activations.num_tokens; token += tile_tokens) {
            const int64_t tokens = std::min<int64_t>(tile_tokens, activations.num_tokens - token);
            tiles[panels - 1][tokens - 1](weight, panel, activations, token);
        }
    }
    return Isa::avx512_vnni;
}

}  // namespace qk::linear_q8_0::avx512_vnni

#pragma GCC pop_options
