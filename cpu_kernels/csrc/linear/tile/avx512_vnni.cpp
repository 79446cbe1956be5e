#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linear/block.h"
// All includes before the region, so that no header code gets these instructions. The .inl files are no headers but
// the algorithms themselves, compiled once an instruction set.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")

namespace qk::linear::avx512_vnni {
namespace {
#include "linear/lanes_avx512_vnni.inl"
#include "linear/accumulate.inl"

// Registers at two panels: for 6 tokens 12 int32 and 12 float accumulators, 2 groups, the activations, and a scale or
// minimum: 28 of 32. With a dot for each half of a step 4 tokens have 24 accumulators.
constexpr int tile_tokens(Sums sums, int panels) { return (sums == Sums::half ? 8 : 12) / panels; }

#include "linear/tile.inl"
}  // namespace
#include "linear/tile/tiles.inl"
}  // namespace qk::linear::avx512_vnni

#pragma GCC pop_options
