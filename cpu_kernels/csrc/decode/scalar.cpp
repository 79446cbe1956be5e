#include <bit>
#include <cmath>
#include <cstring>

#include "decode/decode.h"
#include "half.h"

namespace qk::decode::scalar {
namespace {
#include "encode/lanes_scalar.inl"
#include "decode/driver.inl"
#include "decode/shared.inl"
}  // namespace
#define QK_DECODE
#include "block_formats/all.inl"
}  // namespace qk::decode::scalar
