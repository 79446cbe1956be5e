#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linear_trellis/linear_trellis.h"
#include "simd/open_avx_vnni.h"

namespace qk::linear_trellis::avx_vnni {
namespace {
using namespace linear;
#include "linear/lanes_avx_vnni.inl"
#include "linear_trellis/lanes_256.inl"
#include "linear_trellis/dots_256.inl"
}  // namespace
#include "linear_trellis/kernels.inl"
}  // namespace qk::linear_trellis::avx_vnni

#include "simd/close.h"
