// 32-bit integers in the lanes of a register: 8 lanes. Include it after simd/float_avx2.inl.
#ifndef QK_SIMD_FLOAT
#error "simd/int_avx2.inl: include simd/float_*.inl before this file"
#endif
#define QK_SIMD_INT

struct Int { __m256i v; };

inline Int splat_int(int value) { return {_mm256_set1_epi32(value)}; }
inline Int load_int(const void* from) { return {_mm256_loadu_si256(static_cast<const __m256i*>(from))}; }
inline Int select(Mask m, Int yes, Int no) { return {_mm256_blendv_epi8(no.v, yes.v, _mm256_castps_si256(m.v))}; }
inline Int to_int(Float a) { return {_mm256_cvttps_epi32(a.v)}; }
inline Float to_float(Int a) { return {_mm256_cvtepi32_ps(a.v)}; }
inline Float float_of_bits(Int a) { return {_mm256_castsi256_ps(a.v)}; }
inline Int bits_of(Float a) { return {_mm256_castps_si256(a.v)}; }
inline Int operator+(Int a, Int b) { return {_mm256_add_epi32(a.v, b.v)}; }
inline Int operator-(Int a, Int b) { return {_mm256_sub_epi32(a.v, b.v)}; }
inline Int operator&(Int a, Int b) { return {_mm256_and_si256(a.v, b.v)}; }
inline Int operator&(Int a, uint32_t mask) { return a & splat_int(static_cast<int>(mask)); }
inline Int operator|(Int a, Int b) { return {_mm256_or_si256(a.v, b.v)}; }
inline Int operator<<(Int a, int bits) { return {_mm256_slli_epi32(a.v, bits)}; }
inline Int operator>>(Int a, int bits) { return {_mm256_srli_epi32(a.v, bits)}; }

// int8 as floats, and whole numbers as int8, of which the first `count` are written.
inline Float load_bytes(const int8_t* from) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))))};
}
inline void store_bytes(int8_t* to, Int a, int count) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
    const int64_t bytes = _mm_cvtsi128_si64(_mm_packs_epi16(words, words));
    std::memcpy(to, &bytes, static_cast<size_t>(count));
}

// One byte per lane.
inline Int load_codes(const uint8_t* from) {
    return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)))};
}

// value in the lanes whose bit is set, 0 in the others; bit 0 belongs to lane 0
inline Int where_set(uint32_t bits, int value) {
    const __m256i of_lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i all = _mm256_set1_epi32(static_cast<int>(bits));
    const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(all, of_lane), of_lane);
    return {_mm256_and_si256(set, _mm256_set1_epi32(value))};
}

// table[index], index below 16
inline Float look_up(const float* table, Int index) {
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index.v);  // reads the low 3 bits
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), index.v);
    return {_mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index.v, 28)))};  // bit 3 as the sign
}
