#include <algorithm>

#include "mla/kernels.h"
#include "simd/open_avx512.h"

namespace qk::mla::avx512 {
#include "simd/lanes_avx512.inl"
#include "mla/multiply.inl"

}  // namespace qk::mla::avx512

#include "simd/close.h"
