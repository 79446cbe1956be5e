// One row at a time, for any machine. Included inside a namespace, after simd/open_scalar.h.

constexpr Isa this_isa = Isa::scalar;

namespace {

constexpr int width = 1;
constexpr int tokens_at_once = 1;  // in direct.inl: sums of more would not stay in registers

struct Bytes { uint32_t v; };  // 4 k of a row
struct Ints { int32_t v; };
struct Floats { float v; };

// Added to each code of an unpacked stretch.
constexpr int stretch_lift(Sums sums, int) { return unpacked_lift(sums); }

inline uint32_t four(int byte) { return static_cast<uint8_t>(byte) * 0x01010101u; }
// Bytes are added without their top bits, so that nothing is carried from one to the next, and then those.
inline uint32_t add_bytes(uint32_t a, uint32_t b) {
    return ((a & four(127)) + (b & four(127))) ^ ((a ^ b) & four(128));
}

inline Bytes load_codes(const uint8_t* from) {
    Bytes a;
    std::memcpy(&a.v, from, 4);
    return a;
}
inline Bytes next_codes(const uint8_t* from) { return load_codes(from); }
inline void store_codes(uint8_t* to, Bytes a) { std::memcpy(to, &a.v, 4); }
inline Bytes operator&(Bytes a, int byte) { return {a.v & four(byte)}; }
inline Bytes operator|(Bytes a, Bytes b) { return {a.v | b.v}; }
inline Bytes operator+(Bytes a, int byte) { return {add_bytes(a.v, four(byte))}; }
inline Bytes operator+(Bytes a, Bytes b) { return {add_bytes(a.v, b.v)}; }
inline Bytes operator-(Bytes a, Bytes b) { return {add_bytes(add_bytes(a.v, ~b.v), four(1))}; }
inline Bytes operator<<(Bytes a, int bits) { return {a.v << bits}; }  // bits cross bytes: mask them
inline Bytes operator>>(Bytes a, int bits) { return {a.v >> bits}; }

// table[a] for each byte; below 16.
inline Bytes look_up(const uint8_t* table, Bytes a) {
    uint32_t found = 0;
    for (int i = 0; i < 32; i += 8) found |= uint32_t{table[a.v >> i & 15]} << i;
    return {found};
}

// The third of the range of a byte that each one is in: 0, 1 or 2.
inline Bytes first_third(Bytes a) {
    uint32_t thirds = 0;
    for (int i = 0; i < 32; i += 8) thirds |= (a.v >> i & 255) * 3 >> 8 << i;
    return {thirds};
}

inline Ints load_bytes(const uint8_t* from) { return {*from}; }
inline Ints load_signed_bytes(const uint8_t* from) { return {static_cast<int8_t>(*from)}; }
inline Ints operator&(Ints a, int bits) { return {a.v & bits}; }
inline Ints operator|(Ints a, Ints b) { return {a.v | b.v}; }
inline Ints operator<<(Ints a, int bits) { return {a.v << bits}; }
inline Ints operator>>(Ints a, int bits) { return {a.v >> bits}; }
inline Ints operator^(Ints a, Ints b) { return {a.v ^ b.v}; }
inline Ints operator-(Ints a, int b) { return {a.v - b}; }
inline Ints operator+(Ints a, Ints b) { return {a.v + b.v}; }
inline Ints max(Ints a, Ints b) { return {a.v > b.v ? a.v : b.v}; }
inline Ints zero_ints() { return {0}; }

inline Ints as_ints(Bytes a) { return {static_cast<int32_t>(a.v)}; }
inline Bytes as_bytes(Ints a) { return {static_cast<uint32_t>(a.v)}; }

// table[a] for both 16-bit halves of each row's number; below size.
template <int size>
inline Ints look_up_pairs(const uint16_t* table, Ints a) {
    const auto both = static_cast<uint32_t>(a.v);
    return {static_cast<int32_t>(table[both & 0xffff] | uint32_t{table[both >> 16]} << 16)};
}

// The lowest byte of the row's number, four times.
inline Bytes spread(Ints a) { return {four(a.v)}; }

// Each byte times the row's number; no product is above 255.
inline Bytes multiply_small(Bytes a, Ints factor) { return {a.v * static_cast<uint32_t>(factor.v)}; }

inline Floats splat(float a) { return {a}; }
inline Floats load(const float* from) { return {*from}; }
inline void store(float* to, Floats a) { *to = a.v; }
inline Floats load_halves(const uint8_t* from) {
    uint16_t half;
    std::memcpy(&half, from, 2);
    return {half_to_float(half)};
}
inline Floats to_floats(Ints a) { return {static_cast<float>(a.v)}; }
inline Floats floats_of_bits(Ints a) { return {std::bit_cast<float>(a.v)}; }
inline Floats operator*(Floats a, Floats b) { return {a.v * b.v}; }
inline Floats operator-(Floats a) { return {-a.v}; }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return {a.v * b.v + c.v}; }

// sum + codes * x over the 4 k of a group. The codes are unsigned; those of signed formats have `lift` added.
template <int lift>
inline Ints dot(Ints sum, Bytes codes, int32_t x) {
    const auto four_x = static_cast<uint32_t>(x);
    for (int i = 0; i < 32; i += 8)
        sum.v += static_cast<int32_t>(codes.v >> i & 0xff) * static_cast<int8_t>(four_x >> i);
    return sum;
}

// The first value of a sum of products of lifted codes: -lift times the sum of the activations, of -128 times it.
template <int lift>
inline Ints bias(int32_t offset) {
    return {lift == 0 ? 0 : offset / (128 / std::max(lift, 1))};
}

// ---- for reround/kernels.inl

// A row's number of 16 bits.
struct Halves { uint32_t v; };

inline Floats operator+(Floats a, Floats b) { return {a.v + b.v}; }
inline Floats operator/(Floats a, Floats b) { return {a.v / b.v}; }
inline Floats absolute(Floats a) { return {std::fabs(a.v)}; }
inline Floats larger(Floats a, Floats b) { return a.v > b.v ? a : b; }  // b if one is NaN
inline Ints round(Floats a) { return {std::isfinite(a.v) ? static_cast<int32_t>(std::lrint(a.v)) : 0}; }
inline Ints operator+(Ints a, int b) { return {a.v + b}; }
inline Ints operator*(Ints a, int b) { return {a.v * b}; }
inline Halves twice(Ints a) { return {static_cast<uint32_t>(a.v) & 0xffff}; }

// Bits 8..15 of factor * q + addend for each byte q.
inline Bytes high_bytes(Bytes q, Halves factor, Halves addend) {
    uint32_t high = 0;
    for (int i = 0; i < 32; i += 8) high |= (((q.v >> i & 0xff) * factor.v + addend.v) >> 8 & 0xff) << i;
    return {high};
}

}  // namespace
