#include <bit>
#include <cmath>
#include <cstring>

#include "half.h"
#include "integers/integers.h"

namespace qk::integers::scalar {
namespace {
#include "encode/lanes_scalar.inl"
#include "integers/kernels.inl"
}  // namespace
#include "integers/formats.inl"
}  // namespace qk::integers::scalar
