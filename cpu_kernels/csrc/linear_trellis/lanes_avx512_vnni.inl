// Lanes of a trellis code: 16 rows, and four bytes of a hash times one activation by vpdpbusd. Include it after
// simd/open_avx512_vnni.h.
#ifndef QK_INTRINSICS
#error "linear_trellis/lanes_avx512_vnni.inl: include simd/open_avx512_vnni.h before this file"
#endif

using namespace linear;
#include "linear/lanes_avx512_vnni.inl"

namespace {

#include "linear_trellis/lanes_512.inl"

// An activation four times.
inline Ints spread_codes(const uint8_t* codes) { return {spread(load_bytes(codes)).v}; }
inline Ints add_bytes(Ints sum, Ints hashed, const int32_t* x) {
    return {_mm512_dpbusd_epi32(sum.v, hashed.v, _mm512_set1_epi32(*x))};
}
inline Ints sum_of_bytes(Ints hashed) {
    return {_mm512_dpbusd_epi32(_mm512_setzero_si512(), hashed.v, _mm512_set1_epi8(1))};
}

}  // namespace
