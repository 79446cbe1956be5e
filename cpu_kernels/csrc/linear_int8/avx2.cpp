#include <algorithm>
#include <array>
#include <utility>

#include "linear_int8/linear_int8.h"
#include "simd/open_avx2.h"

namespace qk::linear_int8::avx2 {

using namespace linear;
#include "linear/dense_tile.inl"
#include "linear_int8/kernels.inl"
#include "linear_int8/lanes_256.inl"
#include "simd/codes_avx2.inl"

// vpmaddubsw would saturate at two products of 255 * 127, so both sides are widened to 16 bits, where vpmaddwd is
// exact: k and k + 2 in `even`, k + 1 and k + 3 in `odd`.
struct Dot : Lanes {
    struct Pair { __m256i even, odd; };
    using Weights = Pair;
    using Word = Pair;
    static Weights weights(const std::byte* p) {
        const __m256i four = _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
        return {_mm256_and_si256(four, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(four, 8)};
    }
    static Word word(const std::byte* p) {
        int32_t codes;
        __builtin_memcpy(&codes, p, 4);
        const __m256i four = _mm256_set1_epi32(codes);
        return {_mm256_srai_epi16(_mm256_slli_epi16(four, 8), 8), _mm256_srai_epi16(four, 8)};
    }
    static Sum add(Sum sum, Weights weights, Word word) {
        const __m256i even = _mm256_madd_epi16(weights.even, word.even);
        return _mm256_add_epi32(_mm256_add_epi32(sum, even), _mm256_madd_epi16(weights.odd, word.odd));
    }
    // A panel is two registers wide: 6 sums, 4 registers of weights, 2 of activations, temporaries, of 16.
    static constexpr int shapes[] = {0, 0, 3};
};

Isa multiply(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    multiply_panels<Dot>(weight, begin, end, x, Scaled<Dot>{{x, target.codes_per_token}, target});
    return Isa::avx2;
}

static __m256i first(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(std::min<int64_t>(count, 8))),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

float absmax(const float* x, int64_t size) {
    __m256i most8 = _mm256_setzero_si256();  // absolute floats order like their bits, NaN last
    for (int64_t k = 0; k < size; k += 8) {
        const __m256i bits = _mm256_castps_si256(_mm256_maskload_ps(x + k, first(size - k)));
        most8 = _mm256_max_epu32(most8, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    return largest(most8);
}

int32_t codes(const float* x, int64_t size, float scale, int8_t* out) {
    const __m256 divisor = _mm256_set1_ps(scale), least = _mm256_set1_ps(-128), most = _mm256_set1_ps(127);
    int32_t sum = 0;
    for (int64_t k = 0; k < size; k += 8) {
        const __m256 units = _mm256_div_ps(_mm256_maskload_ps(x + k, first(size - k)), divisor);
        const __m256i number = _mm256_castps_si256(_mm256_cmp_ps(units, units, _CMP_ORD_Q));
        const __m256 clamped = _mm256_min_ps(_mm256_max_ps(units, least), most);
        sum += write_codes(_mm256_and_si256(_mm256_cvtps_epi32(clamped), number), size - k, out + k);
    }
    return sum;
}

}  // namespace qk::linear_int8::avx2

#include "simd/close.h"
