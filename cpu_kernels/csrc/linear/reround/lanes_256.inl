// The lanes of reround.inl beyond lanes_256.inl, and included after it.

// A row's number of 16 bits in both halves of its lane.
struct Halves { __m256i v; };

inline Floats operator+(Floats a, Floats b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Floats absolute(Floats a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
inline Floats larger(Floats a, Floats b) { return {_mm256_max_ps(a.v, b.v)}; }  // b if one is NaN
inline Ints round(Floats a) { return {_mm256_cvtps_epi32(a.v)}; }
inline Ints operator+(Ints a, int b) { return {_mm256_add_epi32(a.v, _mm256_set1_epi32(b))}; }
inline Ints operator*(Ints a, int b) { return {_mm256_mullo_epi32(a.v, _mm256_set1_epi32(b))}; }
inline Halves twice(Ints a) {
    return {_mm256_or_si256(_mm256_and_si256(a.v, _mm256_set1_epi32(0xffff)), _mm256_slli_epi32(a.v, 16))};
}

// Bits 8..15 of factor * q + addend for each byte q.
inline Bytes high_bytes(Bytes q, Halves factor, Halves addend) {
    const __m256i low_byte = _mm256_set1_epi16(0xff);
    const __m256i even = _mm256_mullo_epi16(_mm256_and_si256(q.v, low_byte), factor.v);
    const __m256i odd = _mm256_mullo_epi16(_mm256_srli_epi16(q.v, 8), factor.v);
    const __m256i low = _mm256_srli_epi16(_mm256_add_epi16(even, addend.v), 8);
    const __m256i high = _mm256_andnot_si256(low_byte, _mm256_add_epi16(odd, addend.v));
    return {_mm256_or_si256(low, high)};
}
