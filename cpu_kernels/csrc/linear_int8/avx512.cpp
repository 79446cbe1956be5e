#include <algorithm>
#include <array>
#include <utility>

#include "linear_int8/linear_int8.h"
#include "simd/open_avx512.h"

namespace qk::linear_int8::avx512 {

using namespace linear;
#include "linear/dense_tile.inl"
#include "linear_int8/kernels.inl"
#include "linear_int8/lanes_avx512.inl"

// Without VNNI. vpmaddubsw would saturate at two products of 255 * 127, so both sides are widened to 16 bits, where
// vpmaddwd is exact: k and k + 2 in `even`, k + 1 and k + 3 in `odd`.
struct Dot : Lanes {
    struct Pair { __m512i even, odd; };
    using Weights = Pair;
    using Word = Pair;

    static Weights weights(const std::byte* p) {
        const __m512i four = _mm512_load_si512(p);
        return {_mm512_and_si512(four, _mm512_set1_epi16(0xff)), _mm512_srli_epi16(four, 8)};
    }
    static Word word(const std::byte* p) {
        int32_t codes;
        __builtin_memcpy(&codes, p, 4);
        const __m512i four = _mm512_set1_epi32(codes);
        return {_mm512_srai_epi16(_mm512_slli_epi16(four, 8), 8), _mm512_srai_epi16(four, 8)};
    }
    static Sum add(Sum sum, Weights weights, Word word) {
        return sum + reinterpret_cast<Sum>(_mm512_madd_epi16(weights.even, word.even)) +
               reinterpret_cast<Sum>(_mm512_madd_epi16(weights.odd, word.odd));
    }

    // 12 to 16 sums, 4 registers of weights, 2 of activations, temporaries.
    static constexpr int shapes[] = {0, 8, 8};
};

Isa multiply(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    multiply_panels<Dot>(weight, begin, end, x, Scaled<Dot>{{x, target.codes_per_token}, target});
    return Isa::avx512;
}

}  // namespace qk::linear_int8::avx512

#include "simd/close.h"
