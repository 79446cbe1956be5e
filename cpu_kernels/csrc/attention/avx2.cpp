#include <algorithm>
#include <cstddef>
#include <limits>

#include "attention/kernels.h"
#include "simd/headers.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace qk::attention::avx2 {

constexpr Isa this_isa = Isa::avx2;

#include "simd/float_avx2.inl"
#include "simd/int_avx2.inl"
#include "simd/half_avx2.inl"
#include "attention/lanes_avx2.inl"
#include "attention/codes.inl"
#include "attention/float8_floats.inl"
#include "attention/rounding.inl"
#include "attention/prepare.inl"
#include "attention/encode.inl"
#include "attention/attend.inl"
#include "attention/attend_floats.inl"
#include "attention/attend_float8.inl"
#include "attention/attend_integers.inl"
#include "attention/attend_any.inl"
#include "attention/combine.inl"
#include "attention/latent.inl"

}  // namespace qk::attention::avx2

#pragma GCC pop_options
