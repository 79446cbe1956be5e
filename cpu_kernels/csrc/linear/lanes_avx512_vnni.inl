// 16 rows side by side, with vpdpbusd. Included inside a namespace, after simd/open_avx512_vnni.h.

constexpr Isa this_isa = Isa::avx512_vnni;

namespace {

#include "linear/lanes_512.inl"

// sum + codes * x over the 4 k of a group. The codes are unsigned; those of signed formats have `lift` added.
template <int lift>
inline Ints dot(Ints sum, Bytes codes, int32_t x) {
    return {_mm512_dpbusd_epi32(sum.v, codes.v, _mm512_set1_epi32(x))};
}

// The first value of a sum of products of lifted codes: -lift times the sum of the activations, of -128 times it.
template <int lift>
inline Ints bias(int32_t offset) {
    if constexpr (lift == 0) return zero_ints();
    return {_mm512_srai_epi32(_mm512_set1_epi32(offset), __builtin_ctz(128 / lift))};
}

}  // namespace
