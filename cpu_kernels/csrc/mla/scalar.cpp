#include <algorithm>

#include "mla/kernels.h"
#include "simd/headers.h"

namespace qk::mla::scalar {
#include "simd/lanes_scalar.inl"
#include "mla/multiply.inl"

}  // namespace qk::mla::scalar
