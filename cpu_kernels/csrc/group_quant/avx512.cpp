#include "group_quant/group_quant.h"
#include "simd/open_avx512.h"

namespace qk::group_quant::avx512 {
#include "simd/lanes_avx512.inl"
namespace {
#include "group_quant/kernels.inl"
}  // namespace
#include "group_quant/formats.inl"
}  // namespace qk::group_quant::avx512

#include "simd/close.h"
