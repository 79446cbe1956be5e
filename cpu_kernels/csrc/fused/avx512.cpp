#include "fused/row_steps.h"
#include "simd/headers.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")

namespace qk::fused::avx512 {

constexpr Isa this_isa = Isa::avx512;

namespace {
#include "simd/float_avx512.inl"
#include "simd/int_avx512.inl"
}  // namespace
#include "fused/row_steps.inl"
}  // namespace qk::fused::avx512

#pragma GCC pop_options
