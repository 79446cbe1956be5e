// 16 rows side by side, with vpdpbusd. Included inside a namespace and a target region, after <immintrin.h>.

constexpr Isa this_isa = Isa::avx512_vnni;

#include "linear/lanes_512.inl"

// sum + codes * x over the 4 k of a group. The codes are unsigned; those of signed formats have 128 added.
template <bool biased>
inline Ints dot(Ints sum, Bytes codes, int32_t x) {
    return {_mm512_dpbusd_epi32(sum.v, codes.v, _mm512_set1_epi32(x))};
}

// What a sum of products of biased codes starts with.
inline Ints bias(int32_t offset) { return {_mm512_set1_epi32(offset)}; }
