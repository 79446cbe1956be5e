#include "gptq/gptq.h"
#include "simd/headers.h"

namespace qk::gptq::scalar {

constexpr int num_vectors = 4;
#include "simd/lanes_scalar.inl"
#include "gptq/kernels.inl"

}  // namespace qk::gptq::scalar
