// The lanes of AVX-512 without VNNI. Include it after simd/open_avx512.h.
#ifndef QK_INTRINSICS
#error "attention/lanes_avx512.inl: include simd/open_avx512.h before this file"
#endif

constexpr Isa this_isa = Isa::avx512;

#include "attention/lanes_512.inl"

inline Int dot_words(Int sum, Int words, Int pair) {
    return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(words.v, pair.v))};
}
