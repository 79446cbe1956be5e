#include "decode/decode.h"
#include "simd/open_avx512.h"

namespace qk::decode::avx512 {
#include "simd/lanes_avx512.inl"
#include "decode/kernels.inl"
}  // namespace qk::decode::avx512

#include "simd/close.h"
