#include "encode/affine/search.h"
#include "encode/encode.h"
#include "simd/headers.h"
// All includes before the region, so that no header code gets these instructions. The .inl files are no headers:
// they hold the algorithms, compiled once per instruction set.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace qk::encode::avx2 {

constexpr Isa this_isa = Isa::avx2;

namespace {
#include "simd/float_avx2.inl"
#include "simd/int_avx2.inl"
#include "simd/half_avx2.inl"
#include "encode/driver.inl"
#include "encode/words.inl"
#include "encode/affine/kernels.inl"
#include "encode/linear/kernels.inl"
}  // namespace
#define QK_ENCODE
#include "block_formats/all.inl"
}  // namespace qk::encode::avx2

#pragma GCC pop_options
