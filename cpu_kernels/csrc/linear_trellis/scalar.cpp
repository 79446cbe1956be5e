#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "half.h"
#include "linear_trellis/linear_trellis.h"

#define QK_SCALAR_LANES  // no intrinsics

namespace qk::linear_trellis::scalar {
namespace {
using namespace linear;
#include "linear/lanes_scalar.inl"
#include "linear_trellis/lanes_scalar.inl"
}  // namespace
#include "linear_trellis/kernels.inl"
}  // namespace qk::linear_trellis::scalar
