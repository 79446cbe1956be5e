#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "buffer.h"
#include "linear_float/linear_float.h"
#include "simd/open_avx512_bf16.h"

namespace qk::linear_float::avx512_bf16 {

constexpr Isa this_isa = Isa::avx512_bf16;
constexpr int64_t pair_multiple = 1;  // of k

using namespace linear;
#include "linear/dense_tile.inl"
#include "linear_float/kernels.inl"
#include "linear_float/lanes_avx512.inl"
#include "linear_float/rounded_f16.inl"

// vdpbf16ps takes subnormal numbers for zeros.
struct Bf16 : Lanes {
    using Weights = __m512bh;
    using Word = __m512bh;
    static constexpr int vector_bytes = 64;

    static Weights weights(const std::byte* p) { return reinterpret_cast<__m512bh>(_mm512_load_si512(p)); }
    static Word word(const std::byte* p) {
        int32_t pair;
        __builtin_memcpy(&pair, p, 4);
        return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
    }
    static Sum add(Sum sum, Weights weights, Word word) { return _mm512_dpbf16_ps(sum, weights, word); }
    // One product a cycle with a latency of 6 wants 6 sums or more; 24 sums, 2 weights and the activations stay in 32
    // registers. 4 panels: few tokens have few sums.
    static constexpr int shapes[] = {6, 12, 12};
};

#include "linear_float/rounded_products.inl"

}  // namespace qk::linear_float::avx512_bf16

#include "simd/close.h"
