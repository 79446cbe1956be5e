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

// a * 2^n for whole n in lowest_power .. 127; 0 at lowest_power
constexpr float lowest_power = -152.0f;
inline Float scale_by_power(Float a, Float n) { return {_mm512_scalef_ps(a.v, n.v)}; }

inline __m128i load_16_bytes(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
inline __m256i load_32_bytes(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }

inline Float load_f16(const uint16_t* from) { return {_mm512_cvtph_ps(load_32_bytes(from))}; }
inline Float load_bf16(const uint16_t* from) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32_bytes(from)), 16))};
}

inline Int load_lanes(const std::byte* from) { return {_mm512_loadu_si512(from)}; }
// The first two and the last two elements of float8 lanes (layout.h), each in the upper half of a lane of 4 bytes.
struct Pairs { Int first, second; };
inline Pairs load_pairs(const std::byte* codes, int64_t lane) {
    const __m512i lanes = load_lanes(codes + 4 * lane).v;
    return {{_mm512_unpacklo_epi16(lanes, lanes)}, {_mm512_unpackhi_epi16(lanes, lanes)}};
}
inline Int load_bytes(const uint8_t* from) { return {_mm512_cvtepu8_epi32(load_16_bytes(from))}; }
inline Int operator&(Int a, uint32_t mask) {
    return {_mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int>(mask)))};
}
template <int n> inline Int shift_left(Int a) { return {_mm512_slli_epi32(a.v, n)}; }
template <int n> inline Int shift_right(Int a) { return {_mm512_srli_epi32(a.v, n)}; }
template <int n> inline Int shift_right_signed(Int a) { return {_mm512_srai_epi32(a.v, n)}; }
inline Int high_bytes(Int words) { return {_mm512_srli_epi16(words.v, 8)}; }
inline Float as_float(Int bits) { return {_mm512_castsi512_ps(bits.v)}; }
// Bits as a float, NaN where the magnitude's are `first` or more
inline Float nan_from(Int bits, uint32_t first) {
    const __m512i magnitude = (bits & 0x7fffffffu).v;
    const __mmask16 is_nan = _mm512_cmpge_epu32_mask(magnitude, _mm512_set1_epi32(static_cast<int>(first)));
    return {_mm512_mask_blend_ps(is_nan, as_float(bits).v, _mm512_set1_ps(std::numeric_limits<float>::quiet_NaN()))};
}

// The nearest integers, of 16 bits
inline void store_words(int16_t* to, Float a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a.v)));
}
inline Int splat_pair(const int16_t* pair) {
    int32_t both;
    __builtin_memcpy(&both, pair, 4);
    return {_mm512_set1_epi32(both)};
}
