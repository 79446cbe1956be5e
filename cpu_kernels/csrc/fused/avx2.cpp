#include "fused/row_steps.h"
#include "simd/headers.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace qk::fused::avx2 {

constexpr Isa this_isa = Isa::avx2;

namespace {
#include "simd/float_avx2.inl"
#include "simd/int_avx2.inl"
}  // namespace
#include "fused/row_steps.inl"
}  // namespace qk::fused::avx2

#pragma GCC pop_options
