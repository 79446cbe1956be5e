#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "half.h"
#include "linear/block.h"

namespace qk::linear::scalar {
namespace {
#include "linear/lanes_scalar.inl"
#include "linear/accumulate.inl"

constexpr int tile_tokens(Sums, int) { return 1; }

#include "linear/tile/place.inl"
#include "linear/tile/dots.inl"
#include "linear/tile.inl"
}  // namespace
#include "linear/tile/tiles.inl"
}  // namespace qk::linear::scalar
