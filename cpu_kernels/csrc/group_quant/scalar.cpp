#include "group_quant/group_quant.h"
#include "simd/headers.h"

namespace qk::group_quant::scalar {

constexpr Isa this_isa = Isa::scalar;

namespace {
#include "simd/float_scalar.inl"
#include "simd/int_scalar.inl"
#include "simd/half_scalar.inl"
#include "group_quant/kernels.inl"
}  // namespace
#include "group_quant/formats.inl"
}  // namespace qk::group_quant::scalar
