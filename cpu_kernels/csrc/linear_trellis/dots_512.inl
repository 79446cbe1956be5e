// Four bytes of a hash times one activation by vpdpbusd: 16 rows. Include it after linear_trellis/lanes_512.inl.
#ifndef QK_TRELLIS_LANES
#error "linear_trellis/dots_512.inl: include linear_trellis/lanes_512.inl before this file"
#endif

// An activation four times.
inline Ints spread_codes(const uint8_t* codes) { return {spread(load_bytes(codes)).v}; }
inline Ints add_bytes(Ints sum, Ints hashed, const int32_t* x) {
    return {_mm512_dpbusd_epi32(sum.v, hashed.v, _mm512_set1_epi32(*x))};
}
inline Ints sum_of_bytes(Ints hashed) {
    return {_mm512_dpbusd_epi32(_mm512_setzero_si512(), hashed.v, _mm512_set1_epi8(1))};
}
