#include <algorithm>
#include <array>
#include <utility>

#include "linear_int8/linear_int8.h"
#include "simd/open_avx_vnni.h"

namespace qk::linear_int8::avx_vnni {

using namespace linear;
#include "linear/dense_tile.inl"
#include "linear_int8/kernels.inl"
#include "linear_int8/lanes_256.inl"

struct Dot : Lanes {
    using Weights = __m256i;
    using Word = __m256i;

    static Weights weights(const std::byte* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
    static Word word(const std::byte* p) {
        int32_t codes;
        __builtin_memcpy(&codes, p, 4);
        return _mm256_set1_epi32(codes);
    }
    static Sum add(Sum sum, Weights weights, Word word) { return _mm256_dpbusd_avx_epi32(sum, weights, word); }

    // A panel is two registers wide: 12 sums, 2 registers of weights, 1 of activations, of 16.
    static constexpr int shapes[] = {0, 0, 6};
};

Isa multiply(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    multiply_panels<Dot>(weight, begin, end, x, Scaled<Dot>{{x, target.codes_per_token}, target});
    return Isa::avx_vnni;
}

}  // namespace qk::linear_int8::avx_vnni

#include "simd/close.h"
