// 8 lanes. Included inside a namespace and a target region, after <immintrin.h>.

constexpr int width = 8;
constexpr int max_rows = 4;          // of a tile
constexpr int tile_registers = 8;  // sums of a tile; of 16 registers the rest hold a step's keys or values and a weight

struct Float { __m256 v; };
struct Int { __m256i v; };

inline Float splat(float value) { return {_mm256_set1_ps(value)}; }
inline Float load(const float* from) { return {_mm256_loadu_ps(from)}; }
inline void store(float* to, Float a) { _mm256_storeu_ps(to, a.v); }
inline Float operator+(Float a, Float b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Float operator-(Float a, Float b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Float operator*(Float a, Float b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Float fma(Float a, Float b, Float c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Float max(Float a, Float b) { return {_mm256_max_ps(a.v, b.v)}; }  // b where one of them is NaN
inline Float round(Float a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline float reduce_max(Float a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
inline float reduce_add(Float a) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

// Lanes begin <= i < end of `inside`, else of `outside`.
inline Float choose_lanes(int begin, int end, Float inside, Float outside) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i from = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(begin - 1));
    const __m256i within = _mm256_and_si256(from, _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
    return {_mm256_blendv_ps(outside.v, inside.v, _mm256_castsi256_ps(within))};
}

inline Int zero_int() { return {_mm256_setzero_si256()}; }
inline Float to_float(Int a) { return {_mm256_cvtepi32_ps(a.v)}; }

// 2^n for whole n in -127 .. 127; 0 at -127
inline Float power_of_2(Float n) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(biased, 23))};
}

inline __m128i load_8_bytes(const void* from) { return _mm_loadl_epi64(static_cast<const __m128i*>(from)); }
inline __m128i load_16_bytes(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

inline Float load_f16(const uint16_t* from) { return {_mm256_cvtph_ps(load_16_bytes(from))}; }
inline Float load_bf16(const uint16_t* from) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16_bytes(from)), 16))};
}
inline Float load_e5m2(const uint8_t* from) {
    return {_mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(load_8_bytes(from)), 8))};
}
// 2^-120 times the value: sign, exponent and mantissa moved to their places in a float, whose bias is 120 more; what is
// subnormal in the one is in the other.
inline Float load_e4m3(const uint8_t* from) {
    const __m256i moved = _mm256_slli_epi32(_mm256_cvtepi8_epi32(load_8_bytes(from)), 20);
    return {_mm256_castsi256_ps(_mm256_and_si256(moved, _mm256_set1_epi32(static_cast<int>(0x87f00000u))))};
}
inline Float load_e4m3_or_nan(const uint8_t* from) {
    const __m256i value = _mm256_castps_si256(load_e4m3(from).v);
    const __m256i magnitude = _mm256_and_si256(value, _mm256_set1_epi32(0x7fffffff));
    const __m256i is_nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(0x07f00000));
    const __m256 nan = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
    return {_mm256_blendv_ps(_mm256_castsi256_ps(value), nan, _mm256_castsi256_ps(is_nan))};
}
inline Int load_bytes(const uint8_t* from) { return {_mm256_cvtepu8_epi32(load_8_bytes(from))}; }
inline Int low_nibbles(Int bytes) { return {_mm256_and_si256(bytes.v, _mm256_set1_epi32(15))}; }
inline Int high_nibbles(Int bytes) { return {_mm256_srli_epi32(bytes.v, 4)}; }

// 2 bytes a lane, widened to 16 bits each
inline Int load_pairs(const uint8_t* from) { return {_mm256_cvtepu8_epi16(load_16_bytes(from))}; }
inline Int low_nibble_pairs(Int pairs) { return {_mm256_and_si256(pairs.v, _mm256_set1_epi16(15))}; }
inline Int high_nibble_pairs(Int pairs) { return {_mm256_srli_epi16(pairs.v, 4)}; }
inline Int splat_pair(const int16_t* pair) {
    int32_t both;
    __builtin_memcpy(&both, pair, 4);
    return {_mm256_set1_epi32(both)};
}
inline Int dot(Int sum, Int pairs, Int q) {
    return {_mm256_add_epi32(sum.v, _mm256_madd_epi16(pairs.v, q.v))};
}
