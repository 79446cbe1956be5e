// Lanes of a trellis code: 8 rows, and four bytes of a hash times one activation by vpdpbusd. Include it after
// simd/open_avx_vnni.h.
#ifndef QK_INTRINSICS
#error "linear_trellis/lanes_avx_vnni.inl: include simd/open_avx_vnni.h before this file"
#endif

using namespace linear;
#include "linear/lanes_avx_vnni.inl"

namespace {

#include "linear_trellis/lanes_256.inl"

// An activation four times.
inline Ints spread_codes(const uint8_t* codes) { return {spread(load_bytes(codes)).v}; }
inline Ints add_bytes(Ints sum, Ints hashed, const int32_t* x) {
    return {_mm256_dpbusd_avx_epi32(sum.v, hashed.v, _mm256_set1_epi32(*x))};
}
inline Ints sum_of_bytes(Ints hashed) {
    return {_mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), hashed.v, _mm256_set1_epi8(1))};
}

}  // namespace
