// 16 rows side by side; the products are tile instructions. Included inside a namespace and a target region, after
// <immintrin.h>.

constexpr Isa this_isa = Isa::amx;

#include "linear/lanes_512.inl"

inline Ints load_ints(const int32_t* from) { return {_mm512_load_si512(from)}; }
inline Ints operator+(Ints a, int32_t b) { return {_mm512_add_epi32(a.v, _mm512_set1_epi32(b))}; }
