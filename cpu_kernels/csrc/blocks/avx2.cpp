#include "blocks/blocks.h"
#include "simd/open_avx2.h"

namespace qk::blocks::avx2 {

#include "simd/lanes_avx2.inl"
#include "blocks/kernels.inl"

}  // namespace qk::blocks::avx2

#include "simd/close.h"
