#include "encode/affine/search.h"
#include "encode/encode.h"
#include "simd/open_avx2.h"

namespace qk::encode::avx2 {
#include "simd/lanes_avx2.inl"
#include "encode/kernels.inl"
}  // namespace qk::encode::avx2

#include "simd/close.h"
