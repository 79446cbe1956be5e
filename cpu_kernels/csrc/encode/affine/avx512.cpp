#include "encode/affine/search.h"
#include "encode/encode.h"
// All includes before the region, so that no header code gets these instructions. The .inl files are no headers but
// the algorithms themselves, compiled once an instruction set.
#include <immintrin.h>

#include <cstring>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
// GCC 12's own _mm512_min_ps reads a variable that it leaves undefined on purpose (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace qk::encode::avx512 {
namespace {
#include "encode/lanes_avx512.inl"
#include "encode/driver.inl"
#include "encode/affine/kernels.inl"
}  // namespace
#define QK_ENCODE_AFFINE
#include "block_formats/all.inl"
}  // namespace qk::encode::avx512

#pragma GCC diagnostic pop
#pragma GCC pop_options
