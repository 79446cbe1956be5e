// Lanes of a trellis code: 16 rows. Include it after linear/lanes_512.inl.
#ifndef QK_INTRINSICS
#error "linear_trellis/lanes_512.inl: include simd/target.h and linear/lanes_*.inl before this file"
#endif
#define QK_TRELLIS_LANES

inline Ints splat_ints(int32_t a) { return {_mm512_set1_epi32(a)}; }
inline void store_ints(int32_t* to, Ints a) { _mm512_store_si512(to, a.v); }
inline Ints operator&(Ints a, Ints b) { return {_mm512_and_si512(a.v, b.v)}; }
inline Ints multiply_add(Ints a, Ints b, Ints c) { return {_mm512_add_epi32(_mm512_mullo_epi32(a.v, b.v), c.v)}; }

inline Ints load_rows(const uint8_t* vector, int) { return {_mm512_load_si512(vector)}; }
// Row 0 has row 15 before it: the bits of a tile are a circle.
inline Ints load_rows_before(const uint8_t* vector, int) {
    const __m512i rows = _mm512_load_si512(vector);
    return {_mm512_alignr_epi32(rows, rows, 15)};
}

// A half of a's lanes above a half of b's.
inline Ints lower_upper(Ints a, Ints b) {
    return {_mm512_rol_epi32(_mm512_mask_blend_epi16(0xaaaaaaaa, a.v, b.v), 16)};
}
inline Ints upper_upper(Ints a, Ints b) {
    return {_mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(b.v, 16), a.v)};
}
inline Ints lower_lower(Ints a, Ints b) {
    return {_mm512_mask_blend_epi16(0x55555555, _mm512_slli_epi32(a.v, 16), b.v)};
}

// Bytes 1 and 2 of each lane as a number.
inline Ints second_bytes(Ints a) {
    const __m128i bytes = _mm_setr_epi8(1, 2, -1, -1, 5, 6, -1, -1, 9, 10, -1, -1, 13, 14, -1, -1);
    return {_mm512_shuffle_epi8(a.v, _mm512_broadcast_i32x4(bytes))};
}
