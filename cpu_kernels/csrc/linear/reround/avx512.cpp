#include "linear/block.h"
#include "simd/open_avx512.h"

namespace qk::linear::avx512 {
namespace {
#include "linear/lanes_avx512.inl"
#include "linear/reround/lanes_512.inl"
#include "linear/reround.inl"
}  // namespace
#include "linear/reround/sums.inl"
}  // namespace qk::linear::avx512

#include "simd/close.h"
