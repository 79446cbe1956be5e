#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linear_trellis/linear_trellis.h"
#include "simd/open_avx512.h"

namespace qk::linear_trellis::avx512 {
namespace {
using namespace linear;
#include "linear/lanes_avx512.inl"
#include "linear_trellis/lanes_512.inl"
#include "linear_trellis/pairs_512.inl"
}  // namespace
#include "linear_trellis/kernels.inl"
}  // namespace qk::linear_trellis::avx512

#include "simd/close.h"
