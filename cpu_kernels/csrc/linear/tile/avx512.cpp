#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linear/block.h"
#include "simd/open_avx512.h"

namespace qk::linear::avx512 {
namespace {
#include "linear/lanes_avx512.inl"
#include "linear/accumulate.inl"

// Registers at two panels: for 6 tokens 12 int32 and 12 float accumulators, 2 groups, the activations, and a scale or
// minimum: 28 of 32. With a dot for each half of a step 4 tokens have 24 accumulators. As many at one panel, which only
// the last of an odd number is: tiles of 12 tokens were no faster there, and took half of the time to compile.
constexpr int tile_tokens(Sums sums, int) { return sums == Sums::half ? 4 : 6; }

#include "linear/tile/place.inl"
#include "linear/tile/dots.inl"
#include "linear/tile.inl"
}  // namespace
#include "linear/tile/tiles.inl"
}  // namespace qk::linear::avx512

#include "simd/close.h"
