#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "attention/kernels.h"
#include "simd/open_avx512.h"

namespace qk::attention::avx512 {

constexpr Isa this_isa = Isa::avx512;

#include "simd/float_avx512.inl"
#include "simd/int_avx512.inl"
#include "simd/half_avx512.inl"
#include "attention/lanes_avx512.inl"

inline Int dot_words(Int sum, Int words, Int pair) {
    return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(words.v, pair.v))};
}

#include "attention/codes.inl"
#include "attention/float8_floats.inl"
#include "attention/rounding.inl"
#include "attention/prepare.inl"
#include "attention/encode.inl"
#include "attention/attend.inl"
#include "attention/attend_floats.inl"
#include "attention/attend_float8.inl"
#include "attention/attend_integers.inl"
#include "attention/attend_any.inl"
#include "attention/combine.inl"
#include "attention/latent.inl"

}  // namespace qk::attention::avx512

#include "simd/close.h"
