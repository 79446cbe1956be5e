#include "fused/row_steps.h"
#include "simd/open_avx2.h"

namespace qk::fused::avx2 {
#include "simd/lanes_avx2.inl"
namespace {
#include "simd/silu.inl"
}
#include "fused/row_steps.inl"
}  // namespace qk::fused::avx2

#include "simd/close.h"
