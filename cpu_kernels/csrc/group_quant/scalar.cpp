#include "group_quant/group_quant.h"
#include "simd/headers.h"

namespace qk::group_quant::scalar {
#include "simd/lanes_scalar.inl"
namespace {
#include "group_quant/kernels.inl"
}  // namespace
#include "group_quant/formats.inl"
}  // namespace qk::group_quant::scalar
