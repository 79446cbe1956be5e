#include <algorithm>
#include <cstddef>
#include <limits>

#include "attention/kernels.h"
#include "simd/open_avx512_vnni.h"

namespace qk::attention::avx512_vnni {

constexpr Isa this_isa = Isa::avx512_vnni;

#include "attention/lanes_avx512_vnni.inl"
#include "attention/codes.inl"
#include "attention/attend.inl"
#include "attention/attend_integers.inl"
#include "attention/attend_any.inl"
#include "attention/latents_avx512.inl"

}  // namespace qk::attention::avx512_vnni

#include "simd/close.h"
