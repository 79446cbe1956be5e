// Lanes of a trellis code: one row. Include it after simd/open_scalar.h.
#ifndef QK_SIMD_HEADERS
#error "linear_trellis/lanes_scalar.inl: include simd/open_scalar.h before this file"
#endif
#define QK_TRELLIS_LANES

using namespace linear;
#include "linear/lanes_scalar.inl"

namespace {

inline Ints splat_ints(int32_t a) { return {a}; }
inline void store_ints(int32_t* to, Ints a) { *to = a.v; }
inline Ints operator&(Ints a, Ints b) { return {a.v & b.v}; }
inline Ints multiply_add(Ints a, Ints b, Ints c) {
    return {static_cast<int32_t>(static_cast<uint32_t>(a.v) * static_cast<uint32_t>(b.v) + static_cast<uint32_t>(c.v))};
}

inline Ints load_rows(const uint8_t* vector, int row) {
    Ints a;
    std::memcpy(&a.v, vector + row * 4, 4);
    return a;
}
// Row 0 has row 15 before it: the bits of a tile are a circle.
inline Ints load_rows_before(const uint8_t* vector, int row) { return load_rows(vector, (row + 15) % 16); }

// A half of a above a half of b.
inline Ints lower_upper(Ints a, Ints b) {
    return {static_cast<int32_t>(static_cast<uint32_t>(a.v) << 16 | static_cast<uint32_t>(b.v) >> 16)};
}
inline Ints upper_upper(Ints a, Ints b) { return lower_upper({a.v >> 16}, b); }
inline Ints lower_lower(Ints a, Ints b) {
    return {static_cast<int32_t>(static_cast<uint32_t>(a.v) << 16 | (static_cast<uint32_t>(b.v) & 0xffff))};
}

// An activation as it is; the bytes of a hash are summed first.
inline Ints spread_codes(const uint8_t* codes) { return load_signed_bytes(codes); }
inline Ints sum_of_bytes(Ints hashed) {
    const auto h = static_cast<uint32_t>(hashed.v);
    return {static_cast<int32_t>((h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24))};
}
inline Ints add_bytes(Ints sum, Ints hashed, const int32_t* x) { return {sum.v + sum_of_bytes(hashed).v * *x}; }

// Bytes 1 and 2 as a number.
inline Ints second_bytes(Ints a) { return {static_cast<int32_t>(static_cast<uint32_t>(a.v) >> 8 & 0xffff)}; }

}  // namespace
