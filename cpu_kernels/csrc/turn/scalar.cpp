#include <array>

#include "simd/headers.h"
#include "turn/turn.h"

namespace qk::turn::scalar {
#include "simd/lanes_scalar.inl"
#include "turn/lanes_scalar.inl"
#include "turn/kernels.inl"
}  // namespace qk::turn::scalar
