#include <limits>

#include "simd/headers.h"
#include "trellis/trellis.h"

namespace qk::trellis::scalar {
#include "simd/lanes_scalar.inl"
#include "trellis/kernels.inl"
}  // namespace qk::trellis::scalar
