#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "attention/kernels.h"
#include "half.h"

namespace qk::attention::scalar {

constexpr Isa this_isa = Isa::scalar;

#include "attention/lanes_scalar.inl"
#include "attention/codes.inl"
#include "attention/float8_floats.inl"
#include "attention/rounding.inl"
#include "attention/encode.inl"
#include "attention/attend.inl"
#include "attention/latent.inl"

}  // namespace qk::attention::scalar
