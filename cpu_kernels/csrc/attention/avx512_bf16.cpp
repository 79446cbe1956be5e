#include <algorithm>
#include <cstddef>
#include <limits>

#include "attention/kernels.h"
#include "simd/headers.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,avx512vbmi,avx2,fma,f16c")

namespace qk::attention::avx512_bf16 {

constexpr Isa this_isa = Isa::avx512_bf16;

#include "simd/float_avx512.inl"
#include "simd/int_avx512.inl"
#include "simd/half_avx512.inl"
#include "attention/lanes_avx512.inl"

inline Int dot_words(Int sum, Int words, Int pair) { return {_mm512_dpwssd_epi32(sum.v, words.v, pair.v)}; }

#include "attention/codes.inl"
#include "attention/float8_pairs.inl"
#include "attention/rounding.inl"
#include "attention/prepare.inl"
#include "attention/attend.inl"
#include "attention/attend_float8.inl"
#include "attention/attend_any.inl"

// Latents are multiplied as float32.
Isa attend_latents(const LatentRows& work) {
    avx512::attend_latents(work);
    return this_isa;
}

}  // namespace qk::attention::avx512_bf16

#pragma GCC pop_options
