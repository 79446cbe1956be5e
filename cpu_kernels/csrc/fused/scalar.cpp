#include "fused/row_steps.h"
#include "simd/headers.h"

namespace qk::fused::scalar {
#include "simd/lanes_scalar.inl"
#include "fused/row_steps.inl"
}  // namespace qk::fused::scalar
