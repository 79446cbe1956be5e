#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linear/block.h"
#include "simd/open_avx2.h"

namespace qk::linear::avx2 {
namespace {
#include "linear/lanes_avx2.inl"
#include "linear/accumulate.inl"

// Registers at one panel: an int32 and a float accumulator a token, the codes, their magnitudes, 1s and 3 temporaries:
// 14 of 16 at 4 tokens. With a dot for each half of a step 3 tokens have 9 accumulators.
constexpr int tile_tokens(Sums sums, int panels) { return panels == 2 ? 2 : sums == Sums::half ? 3 : 4; }

#include "linear/tile.inl"
}  // namespace
#include "linear/tile/tiles.inl"
}  // namespace qk::linear::avx2

#include "simd/close.h"
