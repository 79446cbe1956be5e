#include "blocks/blocks.h"
#include "simd/open_avx512.h"

namespace qk::blocks::avx512 {

#include "simd/lanes_avx512.inl"
#include "blocks/kernels.inl"

}  // namespace qk::blocks::avx512

#include "simd/close.h"
