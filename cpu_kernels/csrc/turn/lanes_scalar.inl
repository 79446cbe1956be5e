// One lane has no partner. Include it after simd/open_scalar.h.
#ifndef QK_SIMD_HEADERS
#error "turn/lanes_scalar.inl: include simd/open_scalar.h before this file"
#endif
#define QK_TURN_LANES

#include "simd/lanes_scalar.inl"

template <int half>
inline Float swapped(Float a) {
    return a;
}
