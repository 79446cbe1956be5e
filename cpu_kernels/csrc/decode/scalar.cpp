#include <bit>
#include <cmath>
#include <cstring>

#include "decode/decode.h"
#include "half.h"

namespace qk::decode::scalar {
namespace {
#include "encode/lanes_scalar.inl"
#include "decode/driver.inl"
#include "decode/small_blocks.inl"
#include "decode/super_blocks.inl"
}  // namespace
#include "decode/formats.inl"
}  // namespace qk::decode::scalar
