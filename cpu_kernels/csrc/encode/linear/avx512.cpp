#include "encode/encode.h"
// All includes before the region, so that no header code gets these instructions. The .inl files are no headers but
// the algorithms themselves, compiled once an instruction set.
#include <immintrin.h>

#include <cstring>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")

namespace qk::encode::avx512 {
namespace {
#include "encode/lanes_avx512.inl"
#include "encode/driver.inl"
#include "encode/linear/kernels.inl"
}  // namespace
#define QK_ENCODE_LINEAR
#include "block_formats/all.inl"
}  // namespace qk::encode::avx512

#pragma GCC pop_options
