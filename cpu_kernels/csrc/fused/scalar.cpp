#include "fused/row_steps.h"
#include "simd/headers.h"

namespace qk::fused::scalar {

constexpr Isa this_isa = Isa::scalar;

namespace {
#include "simd/float_scalar.inl"
#include "simd/int_scalar.inl"
}  // namespace
#include "fused/row_steps.inl"
}  // namespace qk::fused::scalar
