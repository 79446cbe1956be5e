#include "gptq/gptq.h"
#include "simd/headers.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")

namespace qk::gptq::avx512 {

constexpr Isa this_isa = Isa::avx512;
constexpr int num_vectors = 4;  // 16 sums, 4 vectors, 1 coefficient: 21 of 32 registers

namespace {
#include "simd/float_avx512.inl"
}  // namespace
#include "gptq/kernels.inl"

}  // namespace qk::gptq::avx512

#pragma GCC pop_options
