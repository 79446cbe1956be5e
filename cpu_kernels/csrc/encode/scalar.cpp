#include "encode/affine/search.h"
#include "encode/encode.h"
#include "simd/headers.h"

namespace qk::encode::scalar {
#include "simd/lanes_scalar.inl"
#include "encode/kernels.inl"
}  // namespace qk::encode::scalar
