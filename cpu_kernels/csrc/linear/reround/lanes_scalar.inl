// The lanes of reround.inl beyond lanes_scalar.inl, and included after it.

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
