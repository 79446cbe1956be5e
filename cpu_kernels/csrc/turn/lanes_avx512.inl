// Lanes i and i ^ half change places: 16 lanes. Include it after simd/open_avx512.h.
#ifndef QK_INTRINSICS
#error "turn/lanes_avx512.inl: include simd/open_avx512.h before this file"
#endif
#define QK_TURN_LANES

#include "simd/lanes_avx512.inl"

template <int half>
inline Float swapped(Float a) {
    if constexpr (half == 1) return {_mm512_permute_ps(a.v, 0b10110001)};
    if constexpr (half == 2) return {_mm512_permute_ps(a.v, 0b01001110)};
    if constexpr (half == 4) return {_mm512_shuffle_f32x4(a.v, a.v, 0b10110001)};
    return {_mm512_shuffle_f32x4(a.v, a.v, 0b01001110)};
}
