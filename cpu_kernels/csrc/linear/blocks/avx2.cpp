#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linear/block.h"
#include "linear/read_ahead.h"
#include "simd/open_avx2.h"

namespace qk::linear::avx2 {
namespace {
#include "linear/lanes_avx2.inl"
#include "linear/accumulate.inl"
#include "linear/direct/pairs.inl"
}  // namespace
#include "linear/blocks/kernels.inl"
}  // namespace qk::linear::avx2

#include "simd/close.h"
