// One block at a time, for any machine. Included inside a namespace, after <bit>, <cmath> and "half.h".

constexpr int width = 1;
constexpr Isa this_isa = Isa::scalar;

struct Float { float v; };
struct Int { uint32_t v; };
struct Mask { bool v; };

inline Float splat(float value) { return {value}; }
inline Int splat_int(int value) { return {static_cast<uint32_t>(value)}; }
inline Float load(const float* from) { return {*from}; }
inline void store(float* to, Float a) { *to = a.v; }
inline void transpose(Float*) {}
inline Float operator+(Float a, Float b) { return {a.v + b.v}; }
inline Float operator-(Float a, Float b) { return {a.v - b.v}; }
inline Float operator*(Float a, Float b) { return {a.v * b.v}; }
inline Float operator/(Float a, Float b) { return {a.v / b.v}; }
inline Float min(Float a, Float b) { return {a.v < b.v ? a.v : b.v}; }
inline Float max(Float a, Float b) { return {a.v > b.v ? a.v : b.v}; }
inline Float abs(Float a) { return {std::fabs(a.v)}; }
inline Float sqrt(Float a) { return {std::sqrt(a.v)}; }
inline Float round(Float a) {
    // Floats from 2^23 on have no fraction: adding it makes the sum's own rounding, to nearest even, do the work.
    const float magnitude = std::fabs(a.v);
    return {std::copysign(magnitude < 0x1p23f ? magnitude + 0x1p23f - 0x1p23f : magnitude, a.v)};
}
inline Mask operator<(Float a, Float b) { return {a.v < b.v}; }
inline Mask operator<=(Float a, Float b) { return {a.v <= b.v}; }
inline Mask operator>(Float a, Float b) { return {a.v > b.v}; }
inline Mask operator>=(Float a, Float b) { return {a.v >= b.v}; }
inline Mask operator==(Float a, Float b) { return {a.v == b.v}; }
inline Mask operator&(Mask a, Mask b) { return {a.v && b.v}; }
inline Mask operator|(Mask a, Mask b) { return {a.v || b.v}; }
inline bool any(Mask a) { return a.v; }
inline Float select(Mask m, Float yes, Float no) { return m.v ? yes : no; }
// Without a branch: it would be mispredicted every other time.
inline Int select(Mask m, Int yes, Int no) { return {no.v ^ ((no.v ^ yes.v) & (0u - static_cast<uint32_t>(m.v)))}; }

inline Int to_int(Float a) { return {static_cast<uint32_t>(static_cast<int32_t>(a.v))}; }
inline Float to_float(Int a) { return {static_cast<float>(static_cast<int32_t>(a.v))}; }
inline Float float_of_bits(Int a) { return {std::bit_cast<float>(a.v)}; }
inline Int bits_of(Float a) { return {std::bit_cast<uint32_t>(a.v)}; }
inline Int operator+(Int a, Int b) { return {a.v + b.v}; }
inline Int operator-(Int a, Int b) { return {a.v - b.v}; }
inline Int operator&(Int a, Int b) { return {a.v & b.v}; }
inline Int operator|(Int a, Int b) { return {a.v | b.v}; }
inline Int operator<<(Int a, int bits) { return {a.v << bits}; }
inline Int operator>>(Int a, int bits) { return {a.v >> bits}; }

// float16 bits in the low half of each lane, nearest even; and back.
inline Int half_bits(Float a) { return {float_to_half(a.v)}; }
inline Float half_value(Int a) { return {half_to_float(static_cast<uint16_t>(a.v))}; }

// int8 and whole floats; `count` of the `width` are written.
inline Float load_bytes(const int8_t* from) { return {static_cast<float>(*from)}; }
inline void store_bytes(int8_t* to, Int a, int) { *to = static_cast<int8_t>(a.v); }

// A byte a lane.
inline Int load_codes(const uint8_t* from) { return {*from}; }

// value in the lanes whose bit is set, 0 in the others; bit 0 is of lane 0
inline Int where_set(uint32_t bits, int value) { return {bits & 1 ? static_cast<uint32_t>(value) : 0u}; }

// table[index], index below 16
inline Float look_up(const float* table, Int index) { return {table[index.v]}; }
