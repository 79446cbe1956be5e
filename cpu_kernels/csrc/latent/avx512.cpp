#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "half.h"
#include "latent/kernels.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")

namespace qk::latent::avx512 {

constexpr Isa this_isa = Isa::avx512;

namespace {
#include "attention/lanes_avx512.inl"

inline Int load_codes(const int8_t* from) { return {_mm512_cvtepi8_epi32(load_16_bytes(from))}; }
}  // namespace
#include "latent/multiply.inl"

}  // namespace qk::latent::avx512

#pragma GCC pop_options
