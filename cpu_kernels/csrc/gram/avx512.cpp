#include "gram/gram.h"
#include "simd/open_avx512.h"

namespace qk::gram::avx512 {

constexpr int num_rows = 4, num_vectors = 4;  // 16 sums, 8 halves of words, 2 of a row: 26 of 32 registers
#include "simd/lanes_avx512.inl"
namespace {
#include "gram/halves.inl"
}  // namespace
#include "gram/kernels.inl"

}  // namespace qk::gram::avx512

#include "simd/close.h"
