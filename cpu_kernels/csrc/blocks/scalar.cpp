#include "blocks/blocks.h"
#include "simd/headers.h"

namespace qk::blocks::scalar {

#include "simd/lanes_scalar.inl"
#include "blocks/kernels.inl"

}  // namespace qk::blocks::scalar
