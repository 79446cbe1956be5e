#include "linear/block.h"
#include "simd/open_avx2.h"

namespace qk::linear::avx2 {
namespace {
#include "linear/lanes_avx2.inl"
#include "linear/reround/lanes_256.inl"
#include "linear/reround.inl"
}  // namespace
#include "linear/reround/sums.inl"
}  // namespace qk::linear::avx2

#include "simd/close.h"
