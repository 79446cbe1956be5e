// One lane. Included inside a namespace.

constexpr int width = 1;
constexpr int max_rows = 4;          // of a tile
constexpr int tile_registers = 8;

using Float = float;
struct Int { uint32_t v; };

inline Float splat(float value) { return value; }
inline Float load(const float* from) { return *from; }
inline void store(float* to, Float a) { *to = a; }
inline Float fma(Float a, Float b, Float c) { return std::fma(a, b, c); }
inline Float max(Float a, Float b) { return a > b ? a : b; }  // b where one of them is NaN
inline Float round(Float a) { return std::nearbyint(a); }
inline float reduce_max(Float a) { return a; }
inline float reduce_add(Float a) { return a; }
inline Float choose_lanes(int begin, int end, Float inside, Float outside) {
    return begin <= 0 && end > 0 ? inside : outside;
}

inline Int zero_int() { return {0}; }
inline Float to_float(Int a) { return static_cast<float>(static_cast<int32_t>(a.v)); }

// a * 2^n for whole n in lowest_power .. 127; 0 at lowest_power
constexpr float lowest_power = -127.0f;
inline Float scale_by_power(Float a, Float n) {
    return n != n ? n : a * std::bit_cast<float>(static_cast<uint32_t>(static_cast<int>(n) + 127) << 23);
}

inline Float load_f16(const uint16_t* from) { return half_to_float(*from); }
inline Float load_bf16(const uint16_t* from) { return std::bit_cast<float>(static_cast<uint32_t>(*from) << 16); }

inline Int load_lanes(const std::byte* from) {
    Int lane;
    __builtin_memcpy(&lane.v, from, sizeof lane.v);
    return lane;
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
inline Int load_bytes(const uint8_t* from) { return {*from}; }
inline Int operator&(Int a, uint32_t mask) { return {a.v & mask}; }
template <int n> inline Int shift_left(Int a) { return {a.v << n}; }
template <int n> inline Int shift_right(Int a) { return {a.v >> n}; }
template <int n> inline Int shift_right_signed(Int a) {
    return {static_cast<uint32_t>(static_cast<int32_t>(a.v) >> n)};
}
inline Int high_bytes(Int words) { return {words.v >> 8 & 0x00ff00ffu}; }
inline Float as_float(Int bits) { return std::bit_cast<float>(bits.v); }
// Bits as a float, NaN where the magnitude's are `first` or more
inline Float nan_from(Int bits, uint32_t first) {
    return (bits.v & 0x7fffffffu) >= first ? std::numeric_limits<float>::quiet_NaN() : as_float(bits);
}

// The nearest integer, of 16 bits; of NaN any
inline void store_words(int16_t* to, Float a) { *to = static_cast<int16_t>(a != a ? 0.0f : std::nearbyint(a)); }
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
