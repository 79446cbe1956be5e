#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linear/block.h"
#include "simd/open_avx_vnni.h"

namespace qk::linear::avx_vnni {
namespace {
#include "linear/lanes_avx_vnni.inl"
#include "linear/accumulate.inl"

// Registers at two panels: for 6 tokens 12 sums, 2 groups and the activations: 15 of 16. The outputs stay in the L1.
constexpr int tile_tokens(Sums sums, int) { return sums == Sums::half ? 3 : 6; }

#include "linear/tile/place.inl"
#include "linear/tile/dots.inl"
#include "linear/tile.inl"
}  // namespace
#include "linear/tile/tiles.inl"
}  // namespace qk::linear::avx_vnni

#include "simd/close.h"
