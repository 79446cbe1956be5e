// Words as pairs of bfloat16, which vdpbf16ps multiplies. Include it after simd/open_avx512_bf16.h.
#ifndef QK_INTRINSICS
#error "gram/lanes_avx512_bf16.inl: include simd/open_avx512_bf16.h before this file"
#endif
#define QK_GRAM_WORDS

constexpr Isa this_isa = Isa::avx512_bf16;

namespace {
#include "simd/float_avx512.inl"

struct Words { __m512bh v; };

inline Words load_words(const uint32_t* from) { return {(__m512bh)_mm512_loadu_si512(from)}; }
inline Words splat_word(uint32_t word) { return {(__m512bh)_mm512_set1_epi32(static_cast<int>(word))}; }
inline Float multiply_add(Float sum, Words a, Words b) { return {_mm512_dpbf16_ps(sum.v, a.v, b.v)}; }
}  // namespace
