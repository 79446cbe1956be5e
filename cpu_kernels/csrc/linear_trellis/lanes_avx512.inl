// Lanes of a trellis code: 16 rows, and four bytes of a hash times one activation without vpdpbusd. Include it after
// simd/open_avx512.h.
#ifndef QK_INTRINSICS
#error "linear_trellis/lanes_avx512.inl: include simd/open_avx512.h before this file"
#endif

using namespace linear;
#include "linear/lanes_avx512.inl"

namespace {

#include "linear_trellis/lanes_512.inl"

// An activation twice, in 16 bits: bytes are summed in pairs first, as products of a byte would not fit.
inline Ints spread_codes(const uint8_t* codes) {
    const Ints wide = load_signed_bytes(codes);
    return (wide & 0xffff) | wide << 16;
}
inline Ints pair_sums(Ints hashed) { return {_mm512_maddubs_epi16(hashed.v, _mm512_set1_epi8(1))}; }
inline Ints add_bytes(Ints sum, Ints hashed, const int32_t* x) {
    return sum + Ints{_mm512_madd_epi16(pair_sums(hashed).v, _mm512_set1_epi32(*x))};
}
inline Ints sum_of_bytes(Ints hashed) { return {_mm512_madd_epi16(pair_sums(hashed).v, _mm512_set1_epi16(1))}; }

}  // namespace
