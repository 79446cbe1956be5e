#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "attention/kernels.h"
#include "half.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,avx512vbmi,avx2,fma,f16c")

namespace qk::attention::avx512_bf16 {

constexpr Isa this_isa = Isa::avx512_bf16;

#include "attention/lanes_avx512.inl"

inline Int dot_words(Int sum, Int words, Int pair) { return {_mm512_dpwssd_epi32(sum.v, words.v, pair.v)}; }

#include "attention/codes.inl"
#include "attention/float8_pairs.inl"
#include "attention/rounding.inl"
#include "attention/encode.inl"
#include "attention/attend.inl"
#include "attention/latent.inl"

}  // namespace qk::attention::avx512_bf16

#pragma GCC pop_options
