// The instruction set, and float32, 32-bit integers and float16 in the lanes of its registers. Include it inside the
// namespace of an op's implementation.
#ifndef QK_SIMD_HEADERS
#error "simd/lanes_scalar.inl: include simd/headers.h before this file"
#endif

constexpr Isa this_isa = Isa::scalar;

namespace {
#include "simd/float_scalar.inl"
#include "simd/int_scalar.inl"
#include "simd/half_scalar.inl"
}  // namespace
