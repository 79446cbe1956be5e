#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "half.h"
#include "linear/block.h"
#include "linear/read_ahead.h"

namespace qk::linear::scalar {
namespace {
#include "linear/lanes_scalar.inl"
#include "linear/accumulate.inl"
#include "linear/direct/dots.inl"
}  // namespace
#include "linear/blocks/kernels.inl"
}  // namespace qk::linear::scalar
