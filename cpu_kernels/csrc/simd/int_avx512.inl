// 32-bit integers in the lanes of a register: 16 lanes. Include it after simd/float_avx512.inl.
#ifndef QK_SIMD_FLOAT
#error "simd/int_avx512.inl: include simd/float_*.inl before this file"
#endif
#define QK_SIMD_INT

struct Int { __m512i v; };

inline Int splat_int(int value) { return {_mm512_set1_epi32(value)}; }
inline Int load_int(const void* from) { return {_mm512_loadu_si512(from)}; }
inline Int select(Mask m, Int yes, Int no) { return {_mm512_mask_blend_epi32(m.v, no.v, yes.v)}; }
inline Int to_int(Float a) { return {_mm512_cvttps_epi32(a.v)}; }
inline Float to_float(Int a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline Float float_of_bits(Int a) { return {_mm512_castsi512_ps(a.v)}; }
inline Int bits_of(Float a) { return {_mm512_castps_si512(a.v)}; }
inline Int operator+(Int a, Int b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Int operator-(Int a, Int b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline Int operator&(Int a, Int b) { return {_mm512_and_si512(a.v, b.v)}; }
inline Int operator&(Int a, uint32_t mask) { return a & splat_int(static_cast<int>(mask)); }
inline Int operator|(Int a, Int b) { return {_mm512_or_si512(a.v, b.v)}; }
inline Int operator<<(Int a, int bits) { return {_mm512_slli_epi32(a.v, bits)}; }
inline Int operator>>(Int a, int bits) { return {_mm512_srli_epi32(a.v, bits)}; }

// int8 as floats, and whole numbers as int8, of which the first `count` are written.
inline Float load_bytes(const int8_t* from) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))};
}
inline void store_bytes(int8_t* to, Int a, int count) {
    _mm_mask_storeu_epi8(to, static_cast<__mmask16>(0xffff >> (width - count)), _mm512_cvtepi32_epi8(a.v));
}

// One byte per lane.
inline Int load_codes(const uint8_t* from) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
}

// value in the lanes whose bit is set, 0 in the others; bit 0 belongs to lane 0
inline Int where_set(uint32_t bits, int value) {
    return {_mm512_maskz_set1_epi32(static_cast<__mmask16>(bits), value)};
}

// table[index], index below 16
inline Float look_up(const float* table, Int index) { return {_mm512_permutexvar_ps(index.v, _mm512_loadu_ps(table))}; }
