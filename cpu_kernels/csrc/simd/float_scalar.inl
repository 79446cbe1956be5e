// float32 in the lanes of a register: one lane, for any machine. Include it inside a namespace.
// min and max return b if one of both is NaN; round takes ties to even.
#ifndef QK_SIMD_HEADERS
#error "simd/float_scalar.inl: include simd/headers.h before the namespace"
#endif
#define QK_SIMD_FLOAT

constexpr int width = 1;

struct Float { float v; };
struct Mask { bool v; };

inline Float splat(float value) { return {value}; }
inline Float load(const float* from) { return {*from}; }
inline void store(float* to, Float a) { *to = a.v; }
inline Float operator+(Float a, Float b) { return {a.v + b.v}; }
inline Float operator-(Float a, Float b) { return {a.v - b.v}; }
inline Float operator*(Float a, Float b) { return {a.v * b.v}; }
inline Float operator/(Float a, Float b) { return {a.v / b.v}; }
inline Float min(Float a, Float b) { return {a.v < b.v ? a.v : b.v}; }
inline Float max(Float a, Float b) { return {a.v > b.v ? a.v : b.v}; }
inline Float abs(Float a) { return {std::fabs(a.v)}; }
inline Float sqrt(Float a) { return {std::sqrt(a.v)}; }
inline Float round(Float a) {
    // A float from 2^23 on has no fraction bits: the sum is rounded to the nearest even integer.
    const float magnitude = std::fabs(a.v);
    return {std::copysign(magnitude < 0x1p23f ? magnitude + 0x1p23f - 0x1p23f : magnitude, a.v)};
}
inline Float fma(Float a, Float b, Float c) { return {std::fma(a.v, b.v, c.v)}; }
inline Mask operator<(Float a, Float b) { return {a.v < b.v}; }
inline Mask operator<=(Float a, Float b) { return {a.v <= b.v}; }
inline Mask operator>(Float a, Float b) { return {a.v > b.v}; }
inline Mask operator>=(Float a, Float b) { return {a.v >= b.v}; }
inline Mask operator==(Float a, Float b) { return {a.v == b.v}; }
inline Mask operator&(Mask a, Mask b) { return {a.v && b.v}; }
inline Mask operator|(Mask a, Mask b) { return {a.v || b.v}; }
inline bool any(Mask a) { return a.v; }
inline Float select(Mask m, Float yes, Float no) { return m.v ? yes : no; }

// Lane j of row i goes to lane i of row j.
inline void transpose(Float*) {}
