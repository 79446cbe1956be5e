#include <algorithm>

#include "mla/kernels.h"
#include "simd/headers.h"

namespace qk::mla::scalar {

constexpr Isa this_isa = Isa::scalar;

namespace {
#include "simd/float_scalar.inl"
#include "simd/int_scalar.inl"
#include "simd/half_scalar.inl"
}  // namespace
#include "mla/multiply.inl"

}  // namespace qk::mla::scalar
