#include <algorithm>
#include <cstddef>
#include <limits>

#include "attention/kernels.h"
// All includes before the region, so that no header code gets these instructions.
#include "simd/target.h"

QK_OPEN_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,avx512vbmi,avx2,fma,f16c")

namespace qk::attention::avx512_bf16 {

constexpr Isa this_isa = Isa::avx512_bf16;

#include "attention/lanes_avx512_vnni.inl"
#include "attention/kernels/codes.inl"
#include "attention/kernels/float8_pairs.inl"
#include "attention/kernels/rounding.inl"
#include "attention/kernels/prepare.inl"
#include "attention/kernels/attend.inl"
#include "attention/kernels/attend_float8.inl"
#include "attention/kernels/attend_any.inl"
#include "attention/kernels/latents_avx512.inl"

}  // namespace qk::attention::avx512_bf16

QK_CLOSE_TARGET
