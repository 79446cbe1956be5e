#include "gptq/gptq.h"
#include "simd/headers.h"

namespace qk::gptq::scalar {

constexpr Isa this_isa = Isa::scalar;
constexpr int num_vectors = 4;

namespace {
#include "simd/float_scalar.inl"
}  // namespace
#include "gptq/kernels.inl"

}  // namespace qk::gptq::scalar
