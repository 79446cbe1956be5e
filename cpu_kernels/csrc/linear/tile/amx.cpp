#include <algorithm>
#include <cstring>

#include "linear/block.h"
#include "simd/open_avx512_vnni.h"

namespace qk::linear::amx {
namespace {
#include "amx/tiles.inl"
#include "linear/lanes_amx.inl"
#include "linear/accumulate.inl"
#include "linear/tile_amx.inl"
}  // namespace
#include "linear/tile/tiles.inl"
}  // namespace qk::linear::amx

#include "simd/close.h"
