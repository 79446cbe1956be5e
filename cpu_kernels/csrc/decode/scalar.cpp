#include "decode/decode.h"
#include "simd/headers.h"

namespace qk::decode::scalar {

constexpr Isa this_isa = Isa::scalar;

namespace {
#include "simd/float_scalar.inl"
#include "simd/int_scalar.inl"
#include "simd/half_scalar.inl"
#include "decode/driver.inl"
#include "decode/shared.inl"
}  // namespace
#define QK_DECODE
#include "block_formats/all.inl"
}  // namespace qk::decode::scalar
