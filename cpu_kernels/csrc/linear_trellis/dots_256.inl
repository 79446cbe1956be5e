// Four bytes of a hash times one activation by vpdpbusd: 8 rows. Include it after linear_trellis/lanes_256.inl.
#ifndef QK_TRELLIS_LANES
#error "linear_trellis/dots_256.inl: include linear_trellis/lanes_256.inl before this file"
#endif

// An activation four times.
inline Ints spread_codes(const uint8_t* codes) { return {spread(load_bytes(codes)).v}; }
inline Ints add_bytes(Ints sum, Ints hashed, const int32_t* x) {
    return {_mm256_dpbusd_avx_epi32(sum.v, hashed.v, _mm256_set1_epi32(*x))};
}
inline Ints sum_of_bytes(Ints hashed) {
    return {_mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), hashed.v, _mm256_set1_epi8(1))};
}
