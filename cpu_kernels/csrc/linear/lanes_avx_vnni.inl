// 8 rows side by side, with vpdpbusd. Included inside a namespace, after simd/open_avx_vnni.h.

constexpr Isa this_isa = Isa::avx_vnni;

namespace {

#include "linear/lanes_256.inl"

// Added to each code of an unpacked stretch.
constexpr int stretch_lift(Sums sums, int) { return unpacked_lift(sums); }

// sum + codes * x over the 4 k of a group. The codes are unsigned; those of signed formats have `lift` added.
template <int lift>
inline Ints dot(Ints sum, Bytes codes, int32_t x) {
    return {_mm256_dpbusd_avx_epi32(sum.v, codes.v, _mm256_set1_epi32(x))};
}

}  // namespace
