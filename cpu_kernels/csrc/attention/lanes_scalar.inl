// One lane. Included inside a namespace.

constexpr int width = 1;
constexpr int max_rows = 4;          // of a tile
constexpr int tile_registers = 8;

using Float = float;
using Int = int32_t;

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

inline Int zero_int() { return 0; }
inline Float to_float(Int a) { return static_cast<float>(a); }

// 2^n for whole n in -127 .. 127, 0 at -127; of NaN anything, as it is multiplied with NaN
inline Float power_of_2(Float n) {
    return n != n ? n : std::bit_cast<float>(static_cast<uint32_t>(static_cast<int>(n) + 127) << 23);
}

inline Float load_f16(const uint16_t* from) { return half_to_float(*from); }
inline Float load_bf16(const uint16_t* from) { return std::bit_cast<float>(static_cast<uint32_t>(*from) << 16); }
inline Float load_e5m2(const uint8_t* from) { return half_to_float(static_cast<uint16_t>(*from << 8)); }
// 2^-120 times the value: sign, exponent and mantissa moved to their places in a float, whose bias is 120 more; what is
// subnormal in the one is in the other.
inline Float load_e4m3(const uint8_t* from) {
    return std::bit_cast<float>((*from & 0x80u) << 24 | (*from & 0x7fu) << 20);
}
inline Float load_e4m3_or_nan(const uint8_t* from) {
    return (*from & 0x7fu) == 0x7f ? std::numeric_limits<float>::quiet_NaN() : load_e4m3(from);
}
inline Int load_bytes(const uint8_t* from) { return *from; }
inline Int low_nibbles(Int bytes) { return bytes & 15; }
inline Int high_nibbles(Int bytes) { return bytes >> 4; }

// 2 bytes, in the halves of a lane
inline Int load_pairs(const uint8_t* from) { return from[0] | from[1] << 16; }
inline Int low_nibble_pairs(Int pairs) { return pairs & 0x000f000f; }
inline Int high_nibble_pairs(Int pairs) { return pairs >> 4 & 0x000f000f; }
inline Int splat_pair(const int16_t* pair) {
    Int both;
    __builtin_memcpy(&both, pair, 4);
    return both;
}
inline Int dot(Int sum, Int pairs, Int q) {
    return sum + (pairs & 0xffff) * static_cast<int16_t>(q) + (pairs >> 16) * (q >> 16);
}
