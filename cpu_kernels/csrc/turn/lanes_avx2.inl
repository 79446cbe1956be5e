// Lanes i and i ^ half change places: 8 lanes. Include it after simd/open_avx2.h.
#ifndef QK_INTRINSICS
#error "turn/lanes_avx2.inl: include simd/open_avx2.h before this file"
#endif
#define QK_TURN_LANES

#include "simd/lanes_avx2.inl"

template <int half>
inline Float swapped(Float a) {
    if constexpr (half == 1) return {_mm256_permute_ps(a.v, 0b10110001)};
    if constexpr (half == 2) return {_mm256_permute_ps(a.v, 0b01001110)};
    return {_mm256_permute2f128_ps(a.v, a.v, 1)};
}
