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
#pragma GCC target("avx2,fma,f16c")

namespace qk::latent::avx2 {

constexpr Isa this_isa = Isa::avx2;

namespace {
#include "attention/lanes_avx2.inl"

inline Int load_codes(const int8_t* from) { return {_mm256_cvtepi8_epi32(load_8_bytes(from))}; }
}  // namespace
#include "latent/multiply.inl"

}  // namespace qk::latent::avx2

#pragma GCC pop_options
