#include "gptq/gptq.h"
#include "simd/headers.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace qk::gptq::avx2 {

constexpr Isa this_isa = Isa::avx2;
constexpr int num_vectors = 2;  // 8 sums, 2 vectors, 1 coefficient: 11 of 16 registers

namespace {
#include "simd/float_avx2.inl"
}  // namespace
#include "gptq/kernels.inl"

}  // namespace qk::gptq::avx2

#pragma GCC pop_options
