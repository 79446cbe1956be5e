#include <cmath>
#include <cstring>

#include "fused/row_steps.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,f16c")

namespace qk::fused::avx2 {
namespace {
#include "encode/lanes_avx2.inl"
}  // namespace
#include "fused/row_steps.inl"
}  // namespace qk::fused::avx2

#pragma GCC pop_options
