#include <array>

#include "turn/turn.h"
#include "simd/open_avx512.h"

namespace qk::turn::avx512 {
#include "simd/lanes_avx512.inl"
#include "turn/lanes_avx512.inl"
#include "turn/kernels.inl"
}  // namespace qk::turn::avx512

#include "simd/close.h"
