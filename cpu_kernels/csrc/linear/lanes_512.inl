// 16 rows side by side: common code of the instruction sets with 512-bit registers.

constexpr int width = 16;
constexpr int tokens_at_once = direct_tokens;

struct Bytes { __m512i v; };  // a group: 4 k of each row
struct Ints { __m512i v; };   // a whole number per row
struct Floats { __m512 v; };

// Added to each code of an unpacked stretch.
constexpr int stretch_lift(Sums sums, int) { return unpacked_lift(sums); }

inline Bytes load_codes(const uint8_t* from) { return {_mm512_loadu_si512(from)}; }
// Loads from memory, in the order of the program and each once. The processor's prefetching follows a stream that
// visits its cache lines from first to last: read in the order 4 5 6 7 0 1 2 3, which GCC chose for a plain loop, they
// came at 0.62 of the speed (2 threads of Zen 4).
inline Bytes next_codes(const uint8_t* from) {
    Bytes a;
    asm volatile("vmovdqu64 %1, %0" : "=v"(a.v) : "m"(*reinterpret_cast<const __m512i_u*>(from)));
    return a;
}
inline void store_codes(uint8_t* to, Bytes a) { _mm512_store_si512(to, a.v); }
inline Bytes operator&(Bytes a, int byte) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(static_cast<char>(byte)))}; }
inline Bytes operator|(Bytes a, Bytes b) { return {_mm512_or_si512(a.v, b.v)}; }
inline Bytes operator+(Bytes a, int byte) { return {_mm512_add_epi8(a.v, _mm512_set1_epi8(static_cast<char>(byte)))}; }
inline Bytes operator+(Bytes a, Bytes b) { return {_mm512_add_epi8(a.v, b.v)}; }
inline Bytes operator-(Bytes a, Bytes b) { return {_mm512_sub_epi8(a.v, b.v)}; }
inline Bytes operator<<(Bytes a, int bits) { return {_mm512_slli_epi32(a.v, bits)}; }  // bits cross bytes:
inline Bytes operator>>(Bytes a, int bits) { return {_mm512_srli_epi32(a.v, bits)}; }  // mask them

// table[a] for each byte; below 16.
inline Bytes look_up(const uint8_t* table, Bytes a) {
    const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(levels), a.v)};
}

// The third of the range of a byte that each one is in: 0, 1 or 2.
inline Bytes first_third(Bytes a) {
    const __m512i one = _mm512_set1_epi8(1);
    const __mmask64 second = _mm512_cmpge_epu8_mask(a.v, _mm512_set1_epi8(86));
    const __mmask64 third = _mm512_cmpge_epu8_mask(a.v, _mm512_set1_epi8(static_cast<char>(171)));
    const __m512i thirds = _mm512_maskz_mov_epi8(second, one);
    return {_mm512_mask_add_epi8(thirds, third, thirds, one)};
}

inline Ints load_bytes(const uint8_t* from) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
}
inline Ints load_signed_bytes(const uint8_t* from) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
}
inline Ints operator&(Ints a, int bits) { return {_mm512_and_si512(a.v, _mm512_set1_epi32(bits))}; }
inline Ints operator|(Ints a, Ints b) { return {_mm512_or_si512(a.v, b.v)}; }
inline Ints operator<<(Ints a, int bits) { return {_mm512_slli_epi32(a.v, bits)}; }
inline Ints operator>>(Ints a, int bits) { return {_mm512_srli_epi32(a.v, bits)}; }
inline Ints operator^(Ints a, Ints b) { return {_mm512_xor_si512(a.v, b.v)}; }
inline Ints operator-(Ints a, int b) { return {_mm512_sub_epi32(a.v, _mm512_set1_epi32(b))}; }
inline Ints operator+(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Ints max(Ints a, Ints b) { return {_mm512_max_epi32(a.v, b.v)}; }
inline Ints zero_ints() { return {_mm512_setzero_si512()}; }

// table[a] for both 16-bit halves of each row's number; below size, which is 64 times a power of two. A permutation
// looks up 64 words, and each further bit of the index chooses between the results of two.
template <int size>
inline Ints look_up_pairs(const uint16_t* table, Ints a) {
    __m512i found[size / 64];
    for (int i = 0; i < size / 64; i++)
        found[i] =
            _mm512_permutex2var_epi16(_mm512_loadu_si512(table + 64 * i), a.v, _mm512_loadu_si512(table + 64 * i + 32));
    for (int count = size / 64, bit = 64; count > 1; count /= 2, bit *= 2) {
        const __mmask32 second = _mm512_test_epi16_mask(a.v, _mm512_set1_epi16(static_cast<short>(bit)));
        for (int i = 0; i < count / 2; i++) found[i] = _mm512_mask_blend_epi16(second, found[2 * i], found[2 * i + 1]);
    }
    return {found[0]};
}

inline Ints as_ints(Bytes a) { return {a.v}; }
inline Bytes as_bytes(Ints a) { return {a.v}; }

// The lowest byte of each row's number, four times.
inline Bytes spread(Ints a) {
    const __m128i first_of_four = _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    return {_mm512_shuffle_epi8(a.v, _mm512_broadcast_i32x4(first_of_four))};
}

// Each byte times its row's number; no product is above 255, so two bytes are multiplied as one number of 16 bits.
inline Bytes multiply_small(Bytes a, Ints factor) {
    return {_mm512_mullo_epi16(a.v, _mm512_or_si512(factor.v, _mm512_slli_epi32(factor.v, 16)))};
}

inline Floats splat(float a) { return {_mm512_set1_ps(a)}; }
inline Floats load(const float* from) { return {_mm512_load_ps(from)}; }
inline void store(float* to, Floats a) { _mm512_storeu_ps(to, a.v); }
inline Floats load_halves(const uint8_t* from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
inline Floats to_floats(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline Floats floats_of_bits(Ints a) { return {_mm512_castsi512_ps(a.v)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Floats operator-(Floats a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }

// ---- for reround/kernels.inl

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
