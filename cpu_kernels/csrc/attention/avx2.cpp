#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "attention/kernels.h"
#include "half.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace qk::attention::avx2 {

constexpr Isa this_isa = Isa::avx2;

#include "attention/lanes_avx2.inl"

#include "attention/codes.inl"
#include "attention/float8_floats.inl"
#include "attention/rounding.inl"
#include "attention/encode.inl"
#include "attention/attend.inl"
#include "attention/latent.inl"

}  // namespace qk::attention::avx2

#pragma GCC pop_options
