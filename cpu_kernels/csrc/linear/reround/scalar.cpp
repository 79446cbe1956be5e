#include <cmath>
#include <cstring>

#include "half.h"
#include "linear/block.h"

namespace qk::linear::scalar {
namespace {
#include "linear/lanes_scalar.inl"
#include "linear/reround/lanes_scalar.inl"
#include "linear/reround.inl"
}  // namespace
#include "linear/reround/sums.inl"
}  // namespace qk::linear::scalar
