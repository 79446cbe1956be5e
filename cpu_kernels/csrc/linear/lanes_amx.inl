// 16 rows side by side; the products are tile instructions. Included inside a namespace and a target region, after
// simd/target.h.

constexpr Isa this_isa = Isa::amx;

#include "linear/lanes_512.inl"

inline Ints load_ints(const int32_t* from) { return {_mm512_load_si512(from)}; }
inline Bytes operator^(Bytes a, int byte) { return {_mm512_xor_si512(a.v, _mm512_set1_epi8(static_cast<char>(byte)))}; }
inline Floats load_any(const float* from) { return {_mm512_loadu_ps(from)}; }
