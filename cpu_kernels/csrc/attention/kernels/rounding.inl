// Floats to the nearest value of a smaller format, ties to even, as torch's casts do it, without branches, so that
// loops over them are widened. Include it inside a namespace and a target region.
#ifndef QK_SIMD_HEADERS
#error "attention/kernels/rounding.inl: include simd/headers.h before the target region"
#endif
#define QK_ATTENTION_ROUNDING

constexpr float half_max = 65504.0f;
constexpr uint16_t half_nan = 0x7e00;

// Below this the inverse of a query's scale would overflow, and the query counts as zeros.
constexpr float smallest_query = 0x1p-112f;

// The nearest integer, ties to even, of |x| < 2^22: at 1.5 * 2^23 a float has no fraction bits left.
inline float nearest(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

// Keeps `kept` mantissa bits of the 23; a carry goes into the exponent, as it should.
inline uint32_t round_bits(uint32_t magnitude, int kept) {
    const int dropped = 23 - kept;
    return (magnitude + ((1u << (dropped - 1)) - 1) + (magnitude >> dropped & 1)) >> dropped;
}

// magnitude * 2^shift as an integer, nearest even: for subnormal numbers of the smaller format. At 2^(23 - shift) a
// float has just those units.
inline uint32_t round_subnormal(uint32_t magnitude, int shift) {
    const float unit = std::bit_cast<float>(static_cast<uint32_t>(127 + 23 - shift) << 23);
    return std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + unit) - std::bit_cast<uint32_t>(unit);
}

// A format of `exponent` and `mantissa` bits below the sign; biases as IEEE has them.
template <int exponent, int mantissa>
inline uint32_t round_magnitude(uint32_t magnitude) {
    constexpr int bias = (1 << (exponent - 1)) - 1;
    constexpr uint32_t smallest_normal = static_cast<uint32_t>(127 - bias + 1) << 23;
    const uint32_t normal = round_bits(magnitude, mantissa) - (static_cast<uint32_t>(127 - bias) << mantissa);
    const uint32_t subnormal = round_subnormal(magnitude, bias - 1 + mantissa);
    return magnitude < smallest_normal ? subnormal : normal;
}

inline uint16_t to_f16(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    const uint32_t rounded = std::min(round_magnitude<5, 10>(std::min(magnitude, 0x47800000u)), 0x7c00u);  // 2^16: inf
    return static_cast<uint16_t>(sign | (magnitude > 0x7f800000u ? half_nan : rounded));
}

inline uint16_t to_bf16(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return static_cast<uint16_t>(magnitude > 0x7f800000u ? bits >> 16 | 0x7fc0u : rounded);
}

// |x| at most the largest finite value, or NaN
inline uint8_t to_e4m3(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    return static_cast<uint8_t>(sign | (magnitude > 0x7f800000u ? 0x7fu : round_magnitude<4, 3>(magnitude)));
}

inline uint8_t to_e5m2(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    return static_cast<uint8_t>(sign | (magnitude > 0x7f800000u ? 0x7fu : round_magnitude<5, 2>(magnitude)));
}
