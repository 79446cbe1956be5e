// Lanes of a trellis code: 8 rows. Include it after linear/lanes_256.inl.
#ifndef QK_INTRINSICS
#error "linear_trellis/lanes_256.inl: include simd/target.h and linear/lanes_*.inl before this file"
#endif
#define QK_TRELLIS_LANES

inline Ints splat_ints(int32_t a) { return {_mm256_set1_epi32(a)}; }
inline void store_ints(int32_t* to, Ints a) { _mm256_store_si256(reinterpret_cast<__m256i*>(to), a.v); }
inline Ints operator&(Ints a, Ints b) { return {_mm256_and_si256(a.v, b.v)}; }
inline Ints multiply_add(Ints a, Ints b, Ints c) { return {_mm256_add_epi32(_mm256_mullo_epi32(a.v, b.v), c.v)}; }

inline Ints load_rows(const uint8_t* vector, int row) {
    return {_mm256_load_si256(reinterpret_cast<const __m256i*>(vector + row * 4))};
}
// Row 0 has row 15 before it: the bits of a tile are a circle.
inline Ints load_rows_before(const uint8_t* vector, int row) {
    const __m256i turned =
        _mm256_permutevar8x32_epi32(load_rows(vector, row).v, _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6));
    int32_t before;
    std::memcpy(&before, vector + (row + 15) % 16 * 4, 4);
    return {_mm256_blend_epi32(turned, _mm256_set1_epi32(before), 1)};
}

// A half of a's lanes above a half of b's.
inline Ints lower_upper(Ints a, Ints b) {
    return {_mm256_blend_epi16(_mm256_slli_epi32(a.v, 16), _mm256_srli_epi32(b.v, 16), 0b01010101)};
}
inline Ints upper_upper(Ints a, Ints b) { return {_mm256_blend_epi16(_mm256_srli_epi32(b.v, 16), a.v, 0b10101010)}; }
inline Ints lower_lower(Ints a, Ints b) { return {_mm256_blend_epi16(_mm256_slli_epi32(a.v, 16), b.v, 0b01010101)}; }

// Bytes 1 and 2 of each lane as a number.
inline Ints second_bytes(Ints a) {
    const __m128i bytes = _mm_setr_epi8(1, 2, -1, -1, 5, 6, -1, -1, 9, 10, -1, -1, 13, 14, -1, -1);
    return {_mm256_shuffle_epi8(a.v, _mm256_broadcastsi128_si256(bytes))};
}
