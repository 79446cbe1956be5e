#include "gram/gram.h"
#include "simd/headers.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace qk::gram::avx2 {

constexpr Isa this_isa = Isa::avx2;
constexpr int num_rows = 4, num_vectors = 2;  // 8 sums, 4 halves of words, 2 of a row: 14 of 16 registers

namespace {
#include "simd/float_avx2.inl"
#include "simd/int_avx2.inl"
#include "gram/halves.inl"
}  // namespace
#include "gram/kernels.inl"

}  // namespace qk::gram::avx2

#pragma GCC pop_options
