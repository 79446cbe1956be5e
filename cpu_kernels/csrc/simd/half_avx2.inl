// float16 and bfloat16, in memory or in the low half of each lane: 8 lanes.
// Include it after simd/int_avx2.inl.
#ifndef QK_SIMD_INT
#error "simd/half_avx2.inl: include simd/int_*.inl before this file"
#endif
#define QK_SIMD_HALF

inline __m128i load_words(const uint16_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
inline Float load_f16(const uint16_t* from) { return {_mm256_cvtph_ps(load_words(from))}; }
inline Float load_bf16(const uint16_t* from) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_words(from)), 16))};
}

// float16 bits of a, rounded to the nearest even, and back.
inline Int half_bits(Float a) {
    return {_mm256_cvtepu16_epi32(_mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}
inline Float half_value(Int a) {
    const __m256i pairs = _mm256_packus_epi32(a.v, a.v);  // the low 128 bits: lanes 0..3 twice, the high: 4..7
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0b1000)))};
}
