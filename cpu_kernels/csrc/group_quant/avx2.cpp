#include "group_quant/group_quant.h"
#include "simd/open_avx2.h"

namespace qk::group_quant::avx2 {
#include "simd/lanes_avx2.inl"
namespace {
#include "group_quant/kernels.inl"
}  // namespace
#include "group_quant/formats.inl"
}  // namespace qk::group_quant::avx2

#include "simd/close.h"
