#include "gptq/gptq.h"
#include "simd/open_avx512.h"

namespace qk::gptq::avx512 {

constexpr int num_vectors = 4;  // 16 sums, 4 vectors, 1 coefficient: 21 of 32 registers
#include "simd/lanes_avx512.inl"
#include "gptq/kernels.inl"

}  // namespace qk::gptq::avx512

#include "simd/close.h"
