#include <algorithm>
#include <cmath>
#include <cstring>

#include "llm_int8/llm_int8.h"
#include "simd/open_avx2.h"

namespace qk::llm_int8::avx2 {

#include "simd/codes_avx2.inl"

// 8 activations rounded to half precision, those of known features and beyond the row 0.
static __m256 load(const float* x, const uint8_t* known, int64_t count) {
    uint8_t flags[8];
    std::memset(flags, 1, sizeof flags);
    std::memcpy(flags, known, static_cast<size_t>(std::min<int64_t>(count, 8)));
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(flags)));
    const __m256i unknown = _mm256_cmpeq_epi32(wide, _mm256_setzero_si256());
    return _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_maskload_ps(x, unknown), _MM_FROUND_TO_NEAREST_INT));
}

static __m256 magnitudes(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

static __m256 outliers_of(__m256 half) {
    return _mm256_cmp_ps(magnitudes(half), _mm256_set1_ps(outlier_threshold), _CMP_GE_OQ);
}

float scan(const float* x, const uint8_t* known, int64_t size, uint8_t* flags) {
    __m256i most8 = _mm256_setzero_si256();  // absolute floats order like their bits, NaN last
    for (int64_t k = 0; k < size; k += 8) {
        const __m256 half = load(x + k, known + k, size - k);
        const __m256 outliers = outliers_of(half);
        for (auto left = static_cast<uint32_t>(_mm256_movemask_ps(outliers)); left; left &= left - 1)
            raise_flag(flags[k + __builtin_ctz(left)]);
        most8 = _mm256_max_epu32(most8, _mm256_castps_si256(_mm256_andnot_ps(outliers, magnitudes(half))));
    }
    return largest(most8);
}

int32_t codes(const float* x, const uint8_t* known, int64_t size, float per_unit, int8_t* out) {
    int32_t sum = 0;
    for (int64_t k = 0; k < size; k += 8) {
        const __m256 half = load(x + k, known + k, size - k);
        const __m256 units = _mm256_mul_ps(half, _mm256_set1_ps(per_unit));
        const __m256 inliers = _mm256_andnot_ps(outliers_of(half), _mm256_cmp_ps(units, units, _CMP_ORD_Q));
        const __m256i q = _mm256_and_si256(_mm256_cvtps_epi32(units), _mm256_castps_si256(inliers));
        sum += write_codes(q, size - k, out + k);
    }
    return sum;
}

}  // namespace qk::llm_int8::avx2

#include "simd/close.h"
