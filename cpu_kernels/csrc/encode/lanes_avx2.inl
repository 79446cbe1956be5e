// 8 blocks side by side. Included inside a namespace and a target region, after <immintrin.h>.

constexpr int width = 8;
constexpr Isa this_isa = Isa::avx2;

struct Float { __m256 v; };
struct Int { __m256i v; };
struct Mask { __m256 v; };  // all ones or all zeros a lane

inline Float splat(float value) { return {_mm256_set1_ps(value)}; }
inline Int splat_int(int value) { return {_mm256_set1_epi32(value)}; }
inline Float load(const float* from) { return {_mm256_loadu_ps(from)}; }
inline void store(float* to, Float a) { _mm256_storeu_ps(to, a.v); }
inline Float operator+(Float a, Float b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Float operator-(Float a, Float b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Float operator*(Float a, Float b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Float operator/(Float a, Float b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Float min(Float a, Float b) { return {_mm256_min_ps(a.v, b.v)}; }
inline Float max(Float a, Float b) { return {_mm256_max_ps(a.v, b.v)}; }
inline Float abs(Float a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
inline Float sqrt(Float a) { return {_mm256_sqrt_ps(a.v)}; }
inline Float round(Float a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Mask operator<(Float a, Float b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
inline Mask operator<=(Float a, Float b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)}; }
inline Mask operator>(Float a, Float b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ)}; }
inline Mask operator>=(Float a, Float b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ)}; }
inline Mask operator==(Float a, Float b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
inline Mask operator&(Mask a, Mask b) { return {_mm256_and_ps(a.v, b.v)}; }
inline Mask operator|(Mask a, Mask b) { return {_mm256_or_ps(a.v, b.v)}; }
inline bool any(Mask a) { return _mm256_movemask_ps(a.v); }
inline Float select(Mask m, Float yes, Float no) { return {_mm256_blendv_ps(no.v, yes.v, m.v)}; }
inline Int select(Mask m, Int yes, Int no) { return {_mm256_blendv_epi8(no.v, yes.v, _mm256_castps_si256(m.v))}; }

inline Int to_int(Float a) { return {_mm256_cvttps_epi32(a.v)}; }
inline Float to_float(Int a) { return {_mm256_cvtepi32_ps(a.v)}; }
inline Float float_of_bits(Int a) { return {_mm256_castsi256_ps(a.v)}; }
inline Int bits_of(Float a) { return {_mm256_castps_si256(a.v)}; }
inline Int operator+(Int a, Int b) { return {_mm256_add_epi32(a.v, b.v)}; }
inline Int operator-(Int a, Int b) { return {_mm256_sub_epi32(a.v, b.v)}; }
inline Int operator&(Int a, Int b) { return {_mm256_and_si256(a.v, b.v)}; }
inline Int operator|(Int a, Int b) { return {_mm256_or_si256(a.v, b.v)}; }
inline Int operator<<(Int a, int bits) { return {_mm256_slli_epi32(a.v, bits)}; }
inline Int operator>>(Int a, int bits) { return {_mm256_srli_epi32(a.v, bits)}; }

// float16 bits in the low half of each lane, nearest even; and back.
inline Int half_bits(Float a) {
    return {_mm256_cvtepu16_epi32(_mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}
inline Float half_value(Int a) {
    const __m256i pairs = _mm256_packus_epi32(a.v, a.v);  // the low 128 bits: lanes 0..3 twice, the high: 4..7
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0b1000)))};
}

// int8 and whole floats; `count` of the `width` are written.
inline Float load_bytes(const int8_t* from) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))))};
}
inline void store_bytes(int8_t* to, Int a, int count) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a.v), _mm256_extracti128_si256(a.v, 1));
    const int64_t bytes = _mm_cvtsi128_si64(_mm_packs_epi16(words, words));
    std::memcpy(to, &bytes, static_cast<size_t>(count));
}

// A byte a lane.
inline Int load_codes(const uint8_t* from) {
    return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)))};
}

// value in the lanes whose bit is set, 0 in the others; bit 0 is of lane 0
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

// Lane j of row i goes to lane i of row j: pairs, then fours, then halves change places.
inline void transpose(Float* rows) {
    __m256 pairs[8], fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(rows[i].v, rows[i + 1].v);
        pairs[i + 1] = _mm256_unpackhi_ps(rows[i].v, rows[i + 1].v);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0b01000100);
            fours[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0b11101110);
        }
    }
    for (int i = 0; i < 4; i++) {
        rows[i].v = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        rows[i + 4].v = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}
