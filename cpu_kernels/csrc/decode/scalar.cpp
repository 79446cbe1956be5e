#include "decode/decode.h"
#include "simd/headers.h"

namespace qk::decode::scalar {
#include "simd/lanes_scalar.inl"
#include "decode/kernels.inl"
}  // namespace qk::decode::scalar
