#include "gram/gram.h"
#include "simd/open_avx2.h"

namespace qk::gram::avx2 {

constexpr int num_rows = 4, num_vectors = 2;  // 8 sums, 4 halves of words, 2 of a row: 14 of 16 registers
#include "simd/lanes_avx2.inl"
namespace {
#include "gram/halves.inl"
}  // namespace
#include "gram/kernels.inl"

}  // namespace qk::gram::avx2

#include "simd/close.h"
