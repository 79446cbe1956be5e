#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linear/block.h"
// All includes before the region, so that no header code gets these instructions. The .inl files are no headers but
// the algorithms themselves, compiled once an instruction set.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")

namespace qk::linear::avx512 {
namespace {
#include "linear/lanes_avx512.inl"
#include "linear/blocks/kernels.inl"
}  // namespace
#include "linear/blocks/formats.inl"
}  // namespace qk::linear::avx512

#pragma GCC pop_options
