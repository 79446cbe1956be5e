#include "fused/row_steps.h"
#include "simd/open_avx512.h"

namespace qk::fused::avx512 {
#include "simd/lanes_avx512.inl"
namespace {
#include "simd/silu.inl"
}
#include "fused/row_steps.inl"
}  // namespace qk::fused::avx512

#include "simd/close.h"
