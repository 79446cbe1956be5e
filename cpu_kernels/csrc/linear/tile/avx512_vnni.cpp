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

// Registers: an int32 and a float accumulator a token, the group, and a scale and a minimum: 27 of 32 at 12 tokens.
// With a dot for each half of a step 8 tokens have 24 accumulators.
constexpr int tile_tokens(Sums sums) { return sums == Sums::half ? 8 : 12; }

#include "linear/tile.inl"
}  // namespace
#include "linear/tile/tiles.inl"
}  // namespace qk::linear::avx512_vnni

#pragma GCC pop_options
