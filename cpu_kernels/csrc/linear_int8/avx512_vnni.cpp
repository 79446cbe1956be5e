#include <algorithm>
#include <array>
#include <utility>

#include "linear_int8/linear_int8.h"
#include "simd/open_avx512_vnni.h"

namespace qk::linear_int8::avx512_vnni {

using namespace linear;
#include "linear/dense_tile.inl"
#include "linear_int8/kernels.inl"
#include "linear_int8/lanes_avx512.inl"

struct Dot : Lanes {
    using Weights = __m512i;
    using Word = __m512i;

    static Weights weights(const std::byte* p) { return _mm512_load_si512(p); }
    static Word word(const std::byte* p) {
        int32_t four_codes;
        __builtin_memcpy(&four_codes, p, 4);
        return _mm512_set1_epi32(four_codes);
    }
    static Sum add(Sum sum, Weights weights, Word word) {
        return reinterpret_cast<Sum>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), weights, word));
    }

    // One vpdpbusd a cycle with a latency of 4 to 5 wants 8 sums or more; 24 sums, 2 weights and the activations stay
    // in 32 registers. 12 x 2 loads 14 times for 24 products. 4 panels: few tokens have few sums.
    static constexpr int shapes[] = {6, 12, 12};
};

Isa multiply(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    multiply_panels<Dot>(weight, begin, end, x, Scaled<Dot>{{x, target.codes_per_token}, target});
    return Isa::avx512_vnni;
}

}  // namespace qk::linear_int8::avx512_vnni

#include "simd/close.h"
