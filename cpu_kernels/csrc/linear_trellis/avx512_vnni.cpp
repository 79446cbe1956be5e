#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linear_trellis/linear_trellis.h"
#include "simd/open_avx512_vnni.h"

namespace qk::linear_trellis::avx512_vnni {
namespace {
using namespace linear;
#include "linear/lanes_avx512_vnni.inl"
#include "linear_trellis/lanes_512.inl"
#include "linear_trellis/dots_512.inl"
}  // namespace
#include "linear_trellis/kernels.inl"
}  // namespace qk::linear_trellis::avx512_vnni

#include "simd/close.h"
