// 16 lanes. Included inside a namespace and a target region, after <immintrin.h>.

constexpr int width = 16;
constexpr int max_rows = 8;          // of a tile
constexpr int tile_registers = 16;  // sums of a tile; of 32 registers the rest hold keys or values and a weight

struct Float { __m512 v; };
struct Int { __m512i v; };

inline Float splat(float value) { return {_mm512_set1_ps(value)}; }
inline Float load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline void store(float* to, Float a) { _mm512_storeu_ps(to, a.v); }
inline Float operator+(Float a, Float b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Float operator-(Float a, Float b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Float operator*(Float a, Float b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Float fma(Float a, Float b, Float c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Float max(Float a, Float b) { return {_mm512_max_ps(a.v, b.v)}; }  // b where one of them is NaN
inline Float round(Float a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline float reduce_max(Float a) { return _mm512_reduce_max_ps(a.v); }
inline float reduce_add(Float a) { return _mm512_reduce_add_ps(a.v); }

// Lanes begin <= i < end of `inside`, else of `outside`.
inline Float choose_lanes(int begin, int end, Float inside, Float outside) {
    const uint32_t below_end = end >= width ? 0xffff : end <= 0 ? 0 : (1u << end) - 1;
    const uint32_t below_begin = begin >= width ? 0xffff : begin <= 0 ? 0 : (1u << begin) - 1;
    return {_mm512_mask_blend_ps(static_cast<__mmask16>(below_end & ~below_begin), outside.v, inside.v)};
}

inline Int zero_int() { return {_mm512_setzero_si512()}; }
inline Float to_float(Int a) { return {_mm512_cvtepi32_ps(a.v)}; }

// 2^n for whole n in -127 .. 127; 0 at -127
inline Float power_of_2(Float n) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}

inline __m128i load_16_bytes(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
inline __m256i load_32_bytes(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }

inline Float load_f16(const uint16_t* from) { return {_mm512_cvtph_ps(load_32_bytes(from))}; }
inline Float load_bf16(const uint16_t* from) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32_bytes(from)), 16))};
}
inline Float load_e5m2(const uint8_t* from) {
    return {_mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(load_16_bytes(from)), 8))};
}
// 2^-120 times the value: sign, exponent and mantissa moved to their places in a float, whose bias is 120 more; what is
// subnormal in the one is in the other.
inline Float load_e4m3(const uint8_t* from) {
    const __m512i moved = _mm512_slli_epi32(_mm512_cvtepi8_epi32(load_16_bytes(from)), 20);
    return {_mm512_castsi512_ps(_mm512_and_si512(moved, _mm512_set1_epi32(static_cast<int>(0x87f00000u))))};
}
inline Float load_e4m3_or_nan(const uint8_t* from) {
    const __m128i codes = load_16_bytes(from);
    const __mmask16 is_nan = _mm_cmpeq_epi8_mask(_mm_and_si128(codes, _mm_set1_epi8(0x7f)), _mm_set1_epi8(0x7f));
    return {_mm512_mask_blend_ps(is_nan, load_e4m3(from).v, _mm512_set1_ps(std::numeric_limits<float>::quiet_NaN()))};
}
inline Int load_bytes(const uint8_t* from) { return {_mm512_cvtepu8_epi32(load_16_bytes(from))}; }
inline Int low_nibbles(Int bytes) { return {_mm512_and_si512(bytes.v, _mm512_set1_epi32(15))}; }
inline Int high_nibbles(Int bytes) { return {_mm512_srli_epi32(bytes.v, 4)}; }

// 2 bytes a lane, widened to 16 bits each
inline Int load_pairs(const uint8_t* from) { return {_mm512_cvtepu8_epi16(load_32_bytes(from))}; }
inline Int low_nibble_pairs(Int pairs) { return {_mm512_and_si512(pairs.v, _mm512_set1_epi16(15))}; }
inline Int high_nibble_pairs(Int pairs) { return {_mm512_srli_epi16(pairs.v, 4)}; }
inline Int splat_pair(const int16_t* pair) {
    int32_t both;
    __builtin_memcpy(&both, pair, 4);
    return {_mm512_set1_epi32(both)};
}
