// 32-bit integers in the lanes of a register: one lane, for any machine. Include it after simd/float_scalar.inl.
#ifndef QK_SIMD_FLOAT
#error "simd/int_scalar.inl: include simd/float_*.inl before this file"
#endif
#define QK_SIMD_INT

struct Int { uint32_t v; };

inline Int splat_int(int value) { return {static_cast<uint32_t>(value)}; }
inline Int load_int(const void* from) {
    Int lane;
    std::memcpy(&lane.v, from, sizeof lane.v);
    return lane;
}
// Without a branch: it would be mispredicted every other time.
inline Int select(Mask m, Int yes, Int no) { return {no.v ^ ((no.v ^ yes.v) & (0u - static_cast<uint32_t>(m.v)))}; }
inline Int to_int(Float a) { return {static_cast<uint32_t>(static_cast<int32_t>(a.v))}; }
inline Float to_float(Int a) { return {static_cast<float>(static_cast<int32_t>(a.v))}; }
inline Float float_of_bits(Int a) { return {std::bit_cast<float>(a.v)}; }
inline Int bits_of(Float a) { return {std::bit_cast<uint32_t>(a.v)}; }
inline Int operator+(Int a, Int b) { return {a.v + b.v}; }
inline Int operator-(Int a, Int b) { return {a.v - b.v}; }
inline Int operator&(Int a, Int b) { return {a.v & b.v}; }
inline Int operator&(Int a, uint32_t mask) { return a & splat_int(static_cast<int>(mask)); }
inline Int operator|(Int a, Int b) { return {a.v | b.v}; }
inline Int operator<<(Int a, int bits) { return {a.v << bits}; }
inline Int operator>>(Int a, int bits) { return {a.v >> bits}; }

// int8 as floats, and whole numbers as int8, of which the first `count` are written.
inline Float load_bytes(const int8_t* from) { return {static_cast<float>(*from)}; }
inline void store_bytes(int8_t* to, Int a, int) { *to = static_cast<int8_t>(a.v); }

// One byte per lane.
inline Int load_codes(const uint8_t* from) { return {*from}; }

// value in the lanes whose bit is set, 0 in the others; bit 0 belongs to lane 0
inline Int where_set(uint32_t bits, int value) { return {bits & 1 ? static_cast<uint32_t>(value) : 0u}; }

// table[index], index below 16
inline Float look_up(const float* table, Int index) { return {table[index.v]}; }
