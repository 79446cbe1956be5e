#include <cmath>

#include "llm_int8/llm_int8.h"
#include "simd/open_avx512.h"

namespace qk::llm_int8::avx512 {

static __mmask16 first(int64_t count) { return static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1); }

// 16 activations rounded to half precision, those of known features and beyond the row 0.
static __m512 load(const float* x, const uint8_t* known, __mmask16 mask) {
    const __m128i flags = _mm_maskz_loadu_epi8(mask, known);
    const __mmask16 unknown = _mm_mask_testn_epi8_mask(mask, flags, flags);
    return _mm512_cvtph_ps(_mm512_cvtps_ph(_mm512_maskz_loadu_ps(unknown, x), _MM_FROUND_TO_NEAREST_INT));
}

static __mmask16 outliers_of(__m512 half) {
    return _mm512_cmp_ps_mask(_mm512_abs_ps(half), _mm512_set1_ps(outlier_threshold), _CMP_GE_OQ);
}

float scan(const float* x, const uint8_t* known, int64_t size, uint8_t* flags) {
    __m512i most = _mm512_setzero_si512();  // absolute floats order like their bits, NaN last
    for (int64_t k = 0; k < size; k += 16) {
        const __m512 half = load(x + k, known + k, first(size - k));
        const __mmask16 outliers = outliers_of(half);
        for (uint32_t left = outliers; left; left &= left - 1) raise_flag(flags[k + __builtin_ctz(left)]);
        const __m512i bits = _mm512_castps_si512(_mm512_abs_ps(half));
        most = _mm512_mask_max_epu32(most, static_cast<__mmask16>(~outliers), most, bits);
    }
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(_mm512_reduce_max_epu32(most)))));
}

int32_t codes(const float* x, const uint8_t* known, int64_t size, float per_unit, int8_t* out) {
    __m512i sum = _mm512_setzero_si512();
    for (int64_t k = 0; k < size; k += 16) {
        const __mmask16 mask = first(size - k);
        const __m512 half = load(x + k, known + k, mask);
        const __m512 units = _mm512_mul_ps(half, _mm512_set1_ps(per_unit));
        const __mmask16 number = _mm512_cmp_ps_mask(units, units, _CMP_ORD_Q);
        const auto inliers = static_cast<__mmask16>(number & ~outliers_of(half));
        const __m512i q = _mm512_maskz_cvtps_epi32(inliers, units);
        sum = _mm512_add_epi32(sum, q);
        _mm_mask_storeu_epi8(out + k, mask, _mm512_cvtepi32_epi8(q));
    }
    return _mm512_reduce_add_epi32(sum);
}

}  // namespace qk::llm_int8::avx512

#include "simd/close.h"
