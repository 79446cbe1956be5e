#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "attention/kernels.h"
#include "simd/open_avx2.h"

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

#include "simd/close.h"
