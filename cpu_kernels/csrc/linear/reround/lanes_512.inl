// The lanes of reround.inl beyond lanes_512.inl, and included after it.

// A row's number of 16 bits in both halves of its lane.
struct Halves { __m512i v; };

inline Floats operator+(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Floats absolute(Floats a) { return {_mm512_abs_ps(a.v)}; }
inline Floats larger(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }  // b if one is NaN
inline Ints round(Floats a) { return {_mm512_cvtps_epi32(a.v)}; }
inline Ints operator+(Ints a, int b) { return {_mm512_add_epi32(a.v, _mm512_set1_epi32(b))}; }
inline Ints operator*(Ints a, int b) { return {_mm512_mullo_epi32(a.v, _mm512_set1_epi32(b))}; }
inline Halves twice(Ints a) {
    return {_mm512_or_si512(_mm512_and_si512(a.v, _mm512_set1_epi32(0xffff)), _mm512_slli_epi32(a.v, 16))};
}

// Bits 8..15 of factor * q + addend for each byte q.
inline Bytes high_bytes(Bytes q, Halves factor, Halves addend) {
    const __m512i low_byte = _mm512_set1_epi16(0xff);
    const __m512i even = _mm512_mullo_epi16(_mm512_and_si512(q.v, low_byte), factor.v);
    const __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(q.v, 8), factor.v);
    const __m512i low = _mm512_srli_epi16(_mm512_add_epi16(even, addend.v), 8);
    const __m512i high = _mm512_andnot_si512(low_byte, _mm512_add_epi16(odd, addend.v));
    return {_mm512_or_si512(low, high)};
}
