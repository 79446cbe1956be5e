// The lanes, with the operations that only attention has. Include it after simd/open_scalar.h.
#ifndef QK_SIMD_HEADERS
#error "attention/lanes_scalar.inl: include simd/open_scalar.h before this file"
#endif
#define QK_ATTENTION_LANES

constexpr Isa this_isa = Isa::scalar;

#include "simd/float_scalar.inl"
#include "simd/int_scalar.inl"
#include "simd/half_scalar.inl"

constexpr int max_rows = 4;         // of a tile
constexpr int tile_registers = 8;
constexpr bool fetches_each_register = false;

inline float reduce_max(Float a) { return a.v; }
inline float reduce_add(Float a) { return a.v; }
inline Float choose_lanes(int begin, int end, Float inside, Float outside) {
    return begin <= 0 && end > 0 ? inside : outside;
}

// a * 2^n for whole n in lowest_power .. 127; 0 at lowest_power
constexpr float lowest_power = -127.0f;
inline Float scale_by_power(Float a, Float n) {
    if (n.v != n.v) return n;
    return {a.v * std::bit_cast<float>(static_cast<uint32_t>(static_cast<int>(n.v) + 127) << 23)};
}

// The first two and the last two elements of a float8 lane (layout.h), each in the upper half.
struct Pairs { Int first, second; };
inline Pairs load_pairs(const std::byte* codes, int64_t lane) {
    const std::byte* first = codes + lane / 4 * 16 + lane % 4 * 2;
    const auto pair = [](const std::byte* at) {
        return static_cast<uint32_t>(at[0]) << 16 | static_cast<uint32_t>(at[1]) << 24;
    };
    return {{pair(first)}, {pair(first + 8)}};
}
template <int n> inline Int shift_right_signed(Int a) {
    return {static_cast<uint32_t>(static_cast<int32_t>(a.v) >> n)};
}
inline Int high_bytes(Int words) { return {words.v >> 8 & 0x00ff00ffu}; }
// Bits as a float, NaN where the magnitude's are `first` or more
inline Float nan_from(Int bits, uint32_t first) {
    return (bits.v & 0x7fffffffu) >= first ? splat(std::numeric_limits<float>::quiet_NaN()) : float_of_bits(bits);
}

// The nearest integer, of 16 bits; any value for NaN
inline void store_words(int16_t* to, Float a) { *to = static_cast<int16_t>(a.v != a.v ? 0.0f : std::nearbyint(a.v)); }
inline Int splat_pair(const int16_t* pair) {
    Int both;
    __builtin_memcpy(&both.v, pair, sizeof both.v);
    return both;
}
inline Int dot_words(Int sum, Int words, Int pair) {
    const auto product = [](uint32_t a, uint32_t b) { return static_cast<int16_t>(a) * static_cast<int16_t>(b); };
    const int32_t low = product(words.v, pair.v), high = product(words.v >> 16, pair.v >> 16);
    return {sum.v + static_cast<uint32_t>(low) + static_cast<uint32_t>(high)};
}
