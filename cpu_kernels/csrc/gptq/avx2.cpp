#include "gptq/gptq.h"
#include "simd/open_avx2.h"

namespace qk::gptq::avx2 {

constexpr int num_vectors = 2;  // 8 sums, 2 vectors, 1 coefficient: 11 of 16 registers
#include "simd/lanes_avx2.inl"
#include "gptq/kernels.inl"

}  // namespace qk::gptq::avx2

#include "simd/close.h"
