#include <bit>
#include <cmath>
#include <cstring>

#include "fused/row_steps.h"
#include "half.h"

namespace qk::fused::scalar {
namespace {
#include "encode/lanes_scalar.inl"
}  // namespace
#include "fused/row_steps.inl"
}  // namespace qk::fused::scalar
