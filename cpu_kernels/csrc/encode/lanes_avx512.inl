// 16 blocks side by side. Included inside a namespace and a target region, after <immintrin.h>.

constexpr int width = 16;
constexpr Isa this_isa = Isa::avx512;

struct Float { __m512 v; };
struct Int { __m512i v; };
struct Mask { __mmask16 v; };

inline Float splat(float value) { return {_mm512_set1_ps(value)}; }
inline Int splat_int(int value) { return {_mm512_set1_epi32(value)}; }
inline Float load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline void store(float* to, Float a) { _mm512_storeu_ps(to, a.v); }
inline Float operator+(Float a, Float b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Float operator-(Float a, Float b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Float operator*(Float a, Float b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Float operator/(Float a, Float b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Float min(Float a, Float b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Float max(Float a, Float b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Float abs(Float a) { return {_mm512_abs_ps(a.v)}; }
inline Float sqrt(Float a) { return {_mm512_sqrt_ps(a.v)}; }
inline Float round(Float a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Mask operator<(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline Mask operator<=(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
inline Mask operator>(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
inline Mask operator>=(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ)}; }
inline Mask operator==(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
inline Mask operator&(Mask a, Mask b) { return {static_cast<__mmask16>(a.v & b.v)}; }
inline Mask operator|(Mask a, Mask b) { return {static_cast<__mmask16>(a.v | b.v)}; }
inline bool any(Mask a) { return a.v; }
inline Float select(Mask m, Float yes, Float no) { return {_mm512_mask_blend_ps(m.v, no.v, yes.v)}; }
inline Int select(Mask m, Int yes, Int no) { return {_mm512_mask_blend_epi32(m.v, no.v, yes.v)}; }

inline Int to_int(Float a) { return {_mm512_cvttps_epi32(a.v)}; }
inline Float to_float(Int a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline Float float_of_bits(Int a) { return {_mm512_castsi512_ps(a.v)}; }
inline Int bits_of(Float a) { return {_mm512_castps_si512(a.v)}; }
inline Int operator+(Int a, Int b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Int operator-(Int a, Int b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline Int operator&(Int a, Int b) { return {_mm512_and_si512(a.v, b.v)}; }
inline Int operator|(Int a, Int b) { return {_mm512_or_si512(a.v, b.v)}; }
inline Int operator<<(Int a, int bits) { return {_mm512_slli_epi32(a.v, bits)}; }
inline Int operator>>(Int a, int bits) { return {_mm512_srli_epi32(a.v, bits)}; }

// float16 bits in the low half of each lane, nearest even; and back.
inline Int half_bits(Float a) {
    return {_mm512_cvtepu16_epi32(_mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}
inline Float half_value(Int a) { return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a.v))}; }

// int8 and whole floats; `count` of the `width` are written.
inline Float load_bytes(const int8_t* from) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))};
}
inline void store_bytes(int8_t* to, Int a, int count) {
    _mm_mask_storeu_epi8(to, static_cast<__mmask16>(0xffff >> (width - count)), _mm512_cvtepi32_epi8(a.v));
}

// A byte a lane.
inline Int load_codes(const uint8_t* from) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
}

// value in the lanes whose bit is set, 0 in the others; bit 0 is of lane 0
inline Int where_set(uint32_t bits, int value) {
    return {_mm512_maskz_set1_epi32(static_cast<__mmask16>(bits), value)};
}

// table[index], index below 16
inline Float look_up(const float* table, Int index) {
    return {_mm512_permutexvar_ps(index.v, _mm512_loadu_ps(table))};
}

// Lane j of row i goes to lane i of row j: pairs, then fours, then quarters and halves change places.
inline void transpose(Float* rows) {
    __m512 pairs[16], fours[16], eights[16];
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
    }
    for (int i = 0; i < 16; i += 4) {
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm512_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0b01000100);
            fours[i + 2 * j + 1] = _mm512_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0b11101110);
        }
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 16; j += 8) {
            eights[j + i] = _mm512_shuffle_f32x4(fours[j + i], fours[j + i + 4], 0b10001000);
            eights[j + i + 4] = _mm512_shuffle_f32x4(fours[j + i], fours[j + i + 4], 0b11011101);
        }
    }
    for (int i = 0; i < 8; i++) {
        rows[i].v = _mm512_shuffle_f32x4(eights[i], eights[i + 8], 0b10001000);
        rows[i + 8].v = _mm512_shuffle_f32x4(eights[i], eights[i + 8], 0b11011101);
    }
}
