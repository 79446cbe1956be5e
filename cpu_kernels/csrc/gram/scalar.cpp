#include "gram/gram.h"
#include "simd/headers.h"

namespace qk::gram::scalar {

constexpr int num_rows = 4, num_vectors = 4;
#include "simd/lanes_scalar.inl"
namespace {
#include "gram/halves.inl"
}  // namespace
#include "gram/kernels.inl"

}  // namespace qk::gram::scalar
