#include "encode/affine/search.h"
#include "encode/encode.h"
#include "simd/headers.h"
// All includes before the region, so that no header code gets these instructions. The .inl files are no headers:
// they hold the algorithms, compiled once per instruction set.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")

namespace qk::encode::avx512 {

constexpr Isa this_isa = Isa::avx512;

namespace {
#include "simd/float_avx512.inl"
#include "simd/int_avx512.inl"
#include "simd/half_avx512.inl"
#include "encode/driver.inl"
#include "encode/words.inl"
#include "encode/affine/kernels.inl"
#include "encode/linear/kernels.inl"
}  // namespace
#define QK_ENCODE
#include "block_formats/all.inl"
}  // namespace qk::encode::avx512

#pragma GCC pop_options
