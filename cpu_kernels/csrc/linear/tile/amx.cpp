#include <algorithm>
#include <cstring>

#include "linear/block.h"
// All includes before the region, so that no header code gets these instructions. The .inl files are no headers but
// the algorithms themselves, compiled once an instruction set.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")

namespace qk::linear::amx {
namespace {
#include "amx/tiles.inl"
#include "linear/lanes_amx.inl"
#include "linear/accumulate.inl"
#include "linear/tile_amx.inl"
}  // namespace
#include "linear/tile/tiles.inl"
}  // namespace qk::linear::amx

#pragma GCC pop_options
