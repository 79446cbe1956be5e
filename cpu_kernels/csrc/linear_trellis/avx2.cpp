#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linear_trellis/linear_trellis.h"
#include "simd/open_avx2.h"

namespace qk::linear_trellis::avx2 {
namespace {
using namespace linear;
#include "linear/lanes_avx2.inl"
#include "linear_trellis/lanes_256.inl"
#include "linear_trellis/pairs_256.inl"
}  // namespace
#include "linear_trellis/kernels.inl"
}  // namespace qk::linear_trellis::avx2

#include "simd/close.h"
