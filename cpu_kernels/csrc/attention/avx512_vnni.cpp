#include <algorithm>
#include <cstddef>
#include <limits>

#include "attention/kernels.h"
#include "simd/open_avx512_vnni.h"

namespace qk::attention::avx512_vnni {

constexpr Isa this_isa = Isa::avx512_vnni;

#include "attention/lanes_avx512_vnni.inl"
#include "attention/kernels/codes.inl"
#include "attention/kernels/attend.inl"
#include "attention/kernels/attend_integers.inl"
#include "attention/kernels/attend_any.inl"
#include "attention/kernels/latents_avx512.inl"

}  // namespace qk::attention::avx512_vnni

#include "simd/close.h"
