// The lanes of AVX-512, with the operations that only attention has, without dot_words.
#ifndef QK_INTRINSICS
#error "attention/lanes_512.inl: include simd/target.h before the target region"
#endif
#define QK_ATTENTION_LANES

#include "simd/float_avx512.inl"
#include "simd/int_avx512.inl"
#include "simd/half_avx512.inl"

constexpr int max_rows = 8;         // of a tile
constexpr int tile_registers = 16;  // sums of a tile; of 32 registers the rest hold keys or values and a weight
constexpr bool fetches_each_register = false;

inline float reduce_max(Float a) { return _mm512_reduce_max_ps(a.v); }
inline float reduce_add(Float a) { return _mm512_reduce_add_ps(a.v); }

// Lanes begin <= i < end of `inside`, else of `outside`.
inline Float choose_lanes(int begin, int end, Float inside, Float outside) {
    const uint32_t below_end = end >= width ? 0xffff : end <= 0 ? 0 : (1u << end) - 1;
    const uint32_t below_begin = begin >= width ? 0xffff : begin <= 0 ? 0 : (1u << begin) - 1;
    return {_mm512_mask_blend_ps(static_cast<__mmask16>(below_end & ~below_begin), outside.v, inside.v)};
}

// a * 2^n for whole n in lowest_power .. 127; 0 at lowest_power
constexpr float lowest_power = -152.0f;
inline Float scale_by_power(Float a, Float n) { return {_mm512_scalef_ps(a.v, n.v)}; }

// The first two and the last two elements of float8 lanes (layout.h), each in the upper half of a lane of 4 bytes.
struct Pairs { Int first, second; };
inline Pairs load_pairs(const std::byte* codes, int64_t lane) {
    const __m512i lanes = load_int(codes + 4 * lane).v;
    return {{_mm512_unpacklo_epi16(lanes, lanes)}, {_mm512_unpackhi_epi16(lanes, lanes)}};
}
template <int n> inline Int shift_right_signed(Int a) { return {_mm512_srai_epi32(a.v, n)}; }
inline Int high_bytes(Int words) { return {_mm512_srli_epi16(words.v, 8)}; }
// Bits as a float, NaN where the magnitude's are `first` or more
inline Float nan_from(Int bits, uint32_t first) {
    const __m512i magnitude = (bits & 0x7fffffffu).v;
    const __mmask16 is_nan = _mm512_cmpge_epu32_mask(magnitude, _mm512_set1_epi32(static_cast<int>(first)));
    const __m512 nan = _mm512_set1_ps(std::numeric_limits<float>::quiet_NaN());
    return {_mm512_mask_blend_ps(is_nan, float_of_bits(bits).v, nan)};
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
