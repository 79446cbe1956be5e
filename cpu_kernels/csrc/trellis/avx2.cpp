#include <limits>

#include "trellis/trellis.h"
#include "simd/open_avx2.h"

namespace qk::trellis::avx2 {
#include "simd/lanes_avx2.inl"
#include "trellis/kernels.inl"
}  // namespace qk::trellis::avx2

#include "simd/close.h"
