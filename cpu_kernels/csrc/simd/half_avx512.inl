// float16 and bfloat16, in memory or in the low half of each lane: 16 lanes.
// Include it after simd/int_avx512.inl.
#ifndef QK_SIMD_INT
#error "simd/half_avx512.inl: include simd/int_*.inl before this file"
#endif
#define QK_SIMD_HALF

inline __m256i load_words(const uint16_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
inline Float load_f16(const uint16_t* from) { return {_mm512_cvtph_ps(load_words(from))}; }
inline Float load_bf16(const uint16_t* from) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_words(from)), 16))};
}

// float16 bits of a, rounded to the nearest even, and back.
inline Int half_bits(Float a) {
    return {_mm512_cvtepu16_epi32(_mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}
inline Float half_value(Int a) { return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a.v))}; }
