#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linear/block.h"
#include "linear/read_ahead.h"
#include "simd/open_avx512.h"

namespace qk::linear::avx512 {
namespace {
#include "linear/lanes_avx512.inl"
#include "linear/accumulate.inl"
#include "linear/direct/dots.inl"
}  // namespace
#include "linear/blocks/kernels.inl"
}  // namespace qk::linear::avx512

#include "simd/close.h"
