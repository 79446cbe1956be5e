#include <array>

#include "turn/turn.h"
#include "simd/open_avx2.h"

namespace qk::turn::avx2 {
#include "simd/lanes_avx2.inl"
#include "turn/lanes_avx2.inl"
#include "turn/kernels.inl"
}  // namespace qk::turn::avx2

#include "simd/close.h"
