#include <algorithm>
#include <array>
#include <utility>

#include "linear_float/linear_float.h"
#include "simd/open_avx512.h"

namespace qk::linear_float::avx512 {

constexpr Isa this_isa = Isa::avx512;

using namespace linear;
#include "linear/dense_tile.inl"
#include "linear_float/kernels.inl"
#include "simd/float_avx512.inl"
#include "simd/int_avx512.inl"
#include "simd/half_avx512.inl"
#include "linear_float/lanes_avx512.inl"

// One FMA a cycle with a latency of 4 wants 4 sums or more; 24 sums, 2 weights and the activations stay in 32
// registers. 4 panels: few tokens have few sums.
constexpr int f32_shapes[] = {6, 12, 12};
constexpr int bf16_shapes[] = {4, 11, 11};  // 22 sums, 4 registers of weights, 2 of activations

#include "linear_float/floats.inl"
#include "linear_float/products.inl"

void round_to_bf16(const float* x, int64_t size, uint16_t* out) {
    for (int64_t k = 0; k < size; k += 16) {
        const auto mask = static_cast<__mmask16>(size - k >= 16 ? 0xffff : (1u << (size - k)) - 1);
        const __m512 value = _mm512_maskz_loadu_ps(mask, x + k);
        const __m512i bits = _mm512_castps_si512(value);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
        const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
        const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
        const __m512i upper = _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16);
        _mm256_mask_storeu_epi16(out + k, mask, _mm512_cvtepi32_epi16(upper));
    }
}

}  // namespace qk::linear_float::avx512

#include "simd/close.h"
