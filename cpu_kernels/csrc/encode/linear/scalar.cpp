#include <bit>
#include <cmath>
#include <cstring>

#include "encode/encode.h"
#include "half.h"

namespace qk::encode::scalar {
namespace {
#include "encode/lanes_scalar.inl"
#include "encode/driver.inl"
#include "encode/linear/kernels.inl"
}  // namespace
#define QK_ENCODE_LINEAR
#include "block_formats/all.inl"
}  // namespace qk::encode::scalar
