#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "attention/kernels.h"
#include "simd/headers.h"

namespace qk::attention::scalar {

constexpr Isa this_isa = Isa::scalar;

#include "simd/float_scalar.inl"
#include "simd/int_scalar.inl"
#include "simd/half_scalar.inl"
#include "attention/lanes_scalar.inl"
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

}  // namespace qk::attention::scalar
