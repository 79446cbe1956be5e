// One lane has no partner. Include it after simd/lanes_scalar.inl.
#ifndef QK_SIMD_INT
#error "turn/lanes_scalar.inl: include simd/lanes_*.inl before this file"
#endif
#define QK_TURN_LANES

template <int half>
inline Float swapped(Float a) {
    return a;
}
