#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "half.h"
#include "latent/kernels.h"

namespace qk::latent::scalar {

constexpr Isa this_isa = Isa::scalar;

namespace {
#include "attention/lanes_scalar.inl"

inline Int load_codes(const int8_t* from) { return {static_cast<uint32_t>(int32_t{*from})}; }
}  // namespace
#include "latent/multiply.inl"

}  // namespace qk::latent::scalar
