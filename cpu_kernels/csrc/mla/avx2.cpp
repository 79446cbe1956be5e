#include <algorithm>

#include "mla/kernels.h"
#include "simd/open_avx2.h"

namespace qk::mla::avx2 {
#include "simd/lanes_avx2.inl"
#include "mla/multiply.inl"

}  // namespace qk::mla::avx2

#include "simd/close.h"
