#include <limits>

#include "trellis/trellis.h"
#include "simd/open_avx512.h"

namespace qk::trellis::avx512 {
#include "simd/lanes_avx512.inl"
#include "trellis/kernels.inl"
}  // namespace qk::trellis::avx512

#include "simd/close.h"
