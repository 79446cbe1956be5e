#include "encode/affine/search.h"
#include "encode/encode.h"
#include "simd/open_avx512.h"

namespace qk::encode::avx512 {
#include "simd/lanes_avx512.inl"
#include "encode/kernels.inl"
}  // namespace qk::encode::avx512

#include "simd/close.h"
