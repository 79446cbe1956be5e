#include <algorithm>

#include "mla/kernels.h"
#include "simd/headers.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")

namespace qk::mla::avx512 {

constexpr Isa this_isa = Isa::avx512;

namespace {
#include "simd/float_avx512.inl"
#include "simd/int_avx512.inl"
#include "simd/half_avx512.inl"
}  // namespace
#include "mla/multiply.inl"

}  // namespace qk::mla::avx512

#pragma GCC pop_options
