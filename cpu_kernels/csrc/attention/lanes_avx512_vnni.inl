// The lanes of AVX-512 with VNNI's products of words. Include it inside a namespace, and inside a region with the target
// avx512vnni next to those of simd/float_avx512.inl.
#ifndef QK_INTRINSICS
#error "attention/lanes_avx512_vnni.inl: include simd/target.h before the target region"
#endif
#include "attention/lanes_512.inl"

inline Int dot_words(Int sum, Int words, Int pair) { return {_mm512_dpwssd_epi32(sum.v, words.v, pair.v)}; }
