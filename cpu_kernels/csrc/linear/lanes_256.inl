// 8 rows side by side: common code of the instruction sets with 256-bit registers.

constexpr int width = 8;
constexpr int tokens_at_once = direct_tokens;

struct Bytes { __m256i v; };  // 4 k of each row
struct Ints { __m256i v; };   // a whole number per row
struct Floats { __m256 v; };

inline Bytes load_codes(const uint8_t* from) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))}; }
// Loads in the order of the program, each once, as lanes_512.inl says.
inline Bytes next_codes(const uint8_t* from) {
    Bytes a;
    asm volatile("vmovdqu %1, %0" : "=x"(a.v) : "m"(*reinterpret_cast<const __m256i_u*>(from)));
    return a;
}
inline void store_codes(uint8_t* to, Bytes a) { _mm256_store_si256(reinterpret_cast<__m256i*>(to), a.v); }
inline Bytes operator&(Bytes a, int byte) { return {_mm256_and_si256(a.v, _mm256_set1_epi8(static_cast<char>(byte)))}; }
inline Bytes operator|(Bytes a, Bytes b) { return {_mm256_or_si256(a.v, b.v)}; }
inline Bytes operator+(Bytes a, int byte) { return {_mm256_add_epi8(a.v, _mm256_set1_epi8(static_cast<char>(byte)))}; }
inline Bytes operator+(Bytes a, Bytes b) { return {_mm256_add_epi8(a.v, b.v)}; }
inline Bytes operator-(Bytes a, Bytes b) { return {_mm256_sub_epi8(a.v, b.v)}; }
inline Bytes operator<<(Bytes a, int bits) { return {_mm256_slli_epi32(a.v, bits)}; }  // bits cross bytes:
inline Bytes operator>>(Bytes a, int bits) { return {_mm256_srli_epi32(a.v, bits)}; }  // mask them

// table[a] for each byte; below 16.
inline Bytes look_up(const uint8_t* table, Bytes a) {
    const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), a.v)};
}

// The third of the range of a byte that each one is in: 0, 1 or 2.
inline Bytes first_third(Bytes a) {
    const auto reaches = [&](int byte) {  // -1 if it does, else 0
        return _mm256_cmpeq_epi8(_mm256_max_epu8(a.v, _mm256_set1_epi8(static_cast<char>(byte))), a.v);
    };
    return {_mm256_abs_epi8(_mm256_add_epi8(reaches(86), reaches(171)))};
}

inline Ints load_bytes(const uint8_t* from) {
    return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)))};
}
inline Ints load_signed_bytes(const uint8_t* from) {
    return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)))};
}
inline Ints operator&(Ints a, int bits) { return {_mm256_and_si256(a.v, _mm256_set1_epi32(bits))}; }
inline Ints operator|(Ints a, Ints b) { return {_mm256_or_si256(a.v, b.v)}; }
inline Ints operator<<(Ints a, int bits) { return {_mm256_slli_epi32(a.v, bits)}; }
inline Ints operator>>(Ints a, int bits) { return {_mm256_srli_epi32(a.v, bits)}; }
inline Ints operator^(Ints a, Ints b) { return {_mm256_xor_si256(a.v, b.v)}; }
inline Ints operator-(Ints a, int b) { return {_mm256_sub_epi32(a.v, _mm256_set1_epi32(b))}; }
inline Ints operator+(Ints a, Ints b) { return {_mm256_add_epi32(a.v, b.v)}; }
inline Ints max(Ints a, Ints b) { return {_mm256_max_epi32(a.v, b.v)}; }
inline Ints zero_ints() { return {_mm256_setzero_si256()}; }

// table[a] for both 16-bit halves of each row's number; below size. Sixteen words that are loaded one by one take 2.5 ns
// of Zen 5, and two gathers of 32 bits 3.6 ns.
template <int size>
inline Ints look_up_pairs(const uint16_t* table, Ints a) {
    alignas(32) uint16_t index[16];
    _mm256_store_si256(reinterpret_cast<__m256i*>(index), a.v);
    const auto eight = [&](const uint16_t* i) {
        return _mm_setr_epi16(table[i[0]], table[i[1]], table[i[2]], table[i[3]], table[i[4]], table[i[5]], table[i[6]],
                              table[i[7]]);
    };
    return {_mm256_set_m128i(eight(index + 8), eight(index))};
}

inline Ints as_ints(Bytes a) { return {a.v}; }
inline Bytes as_bytes(Ints a) { return {a.v}; }

// The lowest byte of each row's number, four times.
inline Bytes spread(Ints a) {
    const __m128i first_of_four = _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    return {_mm256_shuffle_epi8(a.v, _mm256_broadcastsi128_si256(first_of_four))};
}

// Each byte times its row's number; no product is above 255, so two bytes are multiplied as one number of 16 bits.
inline Bytes multiply_small(Bytes a, Ints factor) {
    return {_mm256_mullo_epi16(a.v, _mm256_or_si256(factor.v, _mm256_slli_epi32(factor.v, 16)))};
}

inline Floats splat(float a) { return {_mm256_set1_ps(a)}; }
inline Floats load(const float* from) { return {_mm256_load_ps(from)}; }
inline void store(float* to, Floats a) { _mm256_storeu_ps(to, a.v); }
inline Floats load_halves(const uint8_t* from) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
}
inline Floats to_floats(Ints a) { return {_mm256_cvtepi32_ps(a.v)}; }
inline Floats floats_of_bits(Ints a) { return {_mm256_castsi256_ps(a.v)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Floats operator-(Floats a) { return {_mm256_xor_ps(a.v, _mm256_set1_ps(-0.0f))}; }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }

// The first value of a sum of products of lifted codes: -lift times the sum of the activations, of -128 times it.
template <int lift>
inline Ints bias(int32_t offset) {
    if constexpr (lift == 0) return zero_ints();
    return {_mm256_srai_epi32(_mm256_set1_epi32(offset), __builtin_ctz(128 / lift))};
}

// ---- for reround/kernels.inl

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
