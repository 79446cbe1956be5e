#include "half.h"
#include "integers/integers.h"
// All includes before the region, so that no header code gets these instructions. The .inl files are no headers but
// the algorithms themselves, compiled once an instruction set.
#include <immintrin.h>

#include <cmath>
#include <cstring>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")

namespace qk::integers::avx512 {
namespace {
#include "encode/lanes_avx512.inl"
#include "integers/kernels.inl"
}  // namespace
#include "integers/formats.inl"
}  // namespace qk::integers::avx512

#pragma GCC pop_options
