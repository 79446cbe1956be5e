#include "fused/row_steps.h"
#include "simd/headers.h"

namespace qk::fused::scalar {
#include "simd/lanes_scalar.inl"
namespace {
#include "simd/silu.inl"
}
#include "fused/row_steps.inl"
}  // namespace qk::fused::scalar
