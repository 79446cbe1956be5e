#include "gram/gram.h"
#include "simd/headers.h"

namespace qk::gram::scalar {

constexpr Isa this_isa = Isa::scalar;
constexpr int num_rows = 4, num_vectors = 4;

namespace {
#include "simd/float_scalar.inl"
#include "simd/int_scalar.inl"
#include "gram/halves.inl"
}  // namespace
#include "gram/kernels.inl"

}  // namespace qk::gram::scalar
