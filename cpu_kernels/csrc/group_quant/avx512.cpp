#include "group_quant/group_quant.h"
#include "simd/headers.h"
// All includes before the region, so that no header code gets these instructions. The .inl files are no headers:
// they hold the algorithms, compiled once per instruction set.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")

namespace qk::group_quant::avx512 {

constexpr Isa this_isa = Isa::avx512;

namespace {
#include "simd/float_avx512.inl"
#include "simd/int_avx512.inl"
#include "simd/half_avx512.inl"
#include "group_quant/kernels.inl"
}  // namespace
#include "group_quant/formats.inl"
}  // namespace qk::group_quant::avx512

#pragma GCC pop_options
