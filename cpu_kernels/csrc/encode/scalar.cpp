#include "encode/affine/search.h"
#include "encode/encode.h"
#include "simd/headers.h"

namespace qk::encode::scalar {

constexpr Isa this_isa = Isa::scalar;

namespace {
#include "simd/float_scalar.inl"
#include "simd/int_scalar.inl"
#include "simd/half_scalar.inl"
#include "encode/driver.inl"
#include "encode/words.inl"
#include "encode/affine/kernels.inl"
#include "encode/linear/kernels.inl"
}  // namespace
#define QK_ENCODE
#include "block_formats/all.inl"
}  // namespace qk::encode::scalar
