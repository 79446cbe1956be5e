#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linear/block.h"
#include "linear/read_ahead.h"
#include "simd/open_avx_vnni.h"

namespace qk::linear::avx_vnni {
namespace {
#include "linear/lanes_avx_vnni.inl"
#include "linear/accumulate.inl"
#include "linear/direct/dots.inl"
}  // namespace
#include "linear/blocks/kernels.inl"
}  // namespace qk::linear::avx_vnni

#include "simd/close.h"
