#include "decode/decode.h"
#include "simd/open_avx2.h"

namespace qk::decode::avx2 {
#include "simd/lanes_avx2.inl"
#include "decode/kernels.inl"
}  // namespace qk::decode::avx2

#include "simd/close.h"
