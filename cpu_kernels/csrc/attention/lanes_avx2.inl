// The lanes, with the operations that only attention has. Include it after simd/open_avx2.h.
#ifndef QK_INTRINSICS
#error "attention/lanes_avx2.inl: include simd/open_avx2.h before this file"
#endif
#define QK_ATTENTION_LANES

constexpr Isa this_isa = Isa::avx2;

#include "simd/float_avx2.inl"
#include "simd/int_avx2.inl"
#include "simd/half_avx2.inl"

constexpr int max_rows = 4;         // of a tile
constexpr int tile_registers = 8;  // sums of a tile; of 16 registers the rest hold a step's keys or values and a weight
// Several registers share a cache line. To ask whether one begins a line takes more instructions than to fetch again.
constexpr bool fetches_each_register = true;

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

// a * 2^n for whole n in lowest_power .. 127; 0 at lowest_power
constexpr float lowest_power = -127.0f;
inline Float scale_by_power(Float a, Float n) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
    return a * Float{_mm256_castsi256_ps(_mm256_slli_epi32(biased, 23))};
}

// The first two and the last two elements of float8 lanes (layout.h), each in the upper half of a lane of 4 bytes.
struct Pairs { Int first, second; };
inline Pairs load_pairs(const std::byte* codes, int64_t lane) {
    const __m256i lanes = load_int(codes + 4 * lane).v;
    return {{_mm256_unpacklo_epi16(lanes, lanes)}, {_mm256_unpackhi_epi16(lanes, lanes)}};
}
template <int n> inline Int shift_right_signed(Int a) { return {_mm256_srai_epi32(a.v, n)}; }
inline Int high_bytes(Int words) { return {_mm256_srli_epi16(words.v, 8)}; }
// Bits as a float, NaN where the magnitude's are `first` or more
inline Float nan_from(Int bits, uint32_t first) {
    const __m256i magnitude = (bits & 0x7fffffffu).v;
    const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(static_cast<int>(first - 1)));
    const __m256 nan = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
    return {_mm256_blendv_ps(float_of_bits(bits).v, nan, _mm256_castsi256_ps(is_nan))};
}

// The nearest integers, of 16 bits
inline void store_words(int16_t* to, Float a) {
    const __m256i wide = _mm256_cvtps_epi32(a.v);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
}
inline Int splat_pair(const int16_t* pair) {
    int32_t both;
    __builtin_memcpy(&both, pair, 4);
    return {_mm256_set1_epi32(both)};
}
inline Int dot_words(Int sum, Int words, Int pair) {
    return {_mm256_add_epi32(sum.v, _mm256_madd_epi16(words.v, pair.v))};
}
