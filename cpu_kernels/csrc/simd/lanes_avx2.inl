// The instruction set, and float32, 32-bit integers and float16 in the lanes of its registers. Include it inside the
// namespace of an op's implementation, after simd/open_avx2.h.
#ifndef QK_SIMD_HEADERS
#error "simd/lanes_avx2.inl: include simd/open_avx2.h before this file"
#endif

constexpr Isa this_isa = Isa::avx2;

namespace {
#include "simd/float_avx2.inl"
#include "simd/int_avx2.inl"
#include "simd/half_avx2.inl"
}  // namespace
