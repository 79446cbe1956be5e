#include "decode/decode.h"
// All includes before the region, so that no header code gets these instructions. The .inl files are no headers but
// the algorithms themselves, compiled once an instruction set.
#include <immintrin.h>

#include <cstring>

#pragma GCC push_options
#pragma GCC target("avx2,f16c")

namespace qk::decode::avx2 {
namespace {
#include "encode/lanes_avx2.inl"
#include "decode/driver.inl"
#include "decode/shared.inl"
}  // namespace
#define QK_DECODE
#include "block_formats/all.inl"
}  // namespace qk::decode::avx2

#pragma GCC pop_options
