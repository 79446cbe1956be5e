#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "linear_float/linear_float.h"
#include "simd/open_avx2.h"

namespace qk::linear_float::avx2 {

constexpr Isa this_isa = Isa::avx2;

using namespace linear;
#include "linear/dense_tile.inl"
#include "linear_float/kernels.inl"
#include "simd/float_avx2.inl"
#include "simd/int_avx2.inl"
#include "simd/half_avx2.inl"

// 8 rows per register, two registers per panel.
struct Lanes {
    using Sum = __m256;
    static constexpr int rows = 8;

    static void keep(Sum& sum) { asm("" : "+x"(sum)); }
    static Sum zero() { return _mm256_setzero_ps(); }
    static void store(Sum sum, float* y, int64_t num_rows, bool add) {
        float all[rows];
        _mm256_storeu_ps(all, sum);
        for (int64_t row = 0; row < num_rows; row++) y[row] = add ? y[row] + all[row] : all[row];
    }
};

constexpr int f32_shapes[] = {0, 0, 6};   // 12 sums, 2 weights, 1 activation of 16 registers
constexpr int bf16_shapes[] = {0, 0, 4};  // 8 sums, 4 registers of weights, 2 of activations

#include "linear_float/floats.inl"
#include "linear_float/products.inl"

void round_to_bf16(const float* x, int64_t size, uint16_t* out) {
    for (int64_t k = 0; k < size; k += 8) {
        const auto count = static_cast<int>(std::min<int64_t>(size - k, 8));
        const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        const __m256 value = _mm256_maskload_ps(x + k, mask);
        const __m256i bits = _mm256_castps_si256(value);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
        const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
        const __m256i upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
        uint32_t all[8];
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(all), upper);
        for (int i = 0; i < count; i++) out[k + i] = static_cast<uint16_t>(all[i]);
    }
}

}  // namespace qk::linear_float::avx2

#include "simd/close.h"
