#include "gram/gram.h"
#include "simd/headers.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")

namespace qk::gram::avx512 {

constexpr Isa this_isa = Isa::avx512;
constexpr int num_rows = 4, num_vectors = 4;  // 16 sums, 8 halves of words, 2 of a row: 26 of 32 registers

namespace {
#include "simd/float_avx512.inl"
#include "simd/int_avx512.inl"
#include "gram/halves.inl"
}  // namespace
#include "gram/kernels.inl"

}  // namespace qk::gram::avx512

#pragma GCC pop_options
