#include <bit>
#include <cmath>
#include <cstring>

#include "encode/affine/search.h"
#include "encode/encode.h"
#include "half.h"

namespace qk::encode::scalar {
namespace {
#include "encode/lanes_scalar.inl"
#include "encode/driver.inl"
#include "encode/affine/kernels.inl"
}  // namespace
#include "encode/affine/formats.inl"
}  // namespace qk::encode::scalar
