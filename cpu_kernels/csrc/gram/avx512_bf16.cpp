#include "gram/gram.h"
#include "simd/open_avx512_bf16.h"

namespace qk::gram::avx512_bf16 {

constexpr Isa this_isa = Isa::avx512_bf16;
constexpr int num_rows = 4, num_vectors = 4;  // 16 chains, latency 6 x 1 per cycle; 21 of 32 registers

namespace {
#include "simd/float_avx512.inl"

#define QK_GRAM_WORDS
struct Words { __m512bh v; };

inline Words load_words(const uint32_t* from) { return {(__m512bh)_mm512_loadu_si512(from)}; }
inline Words splat_word(uint32_t word) { return {(__m512bh)_mm512_set1_epi32(static_cast<int>(word))}; }
inline Float multiply_add(Float sum, Words a, Words b) { return {_mm512_dpbf16_ps(sum.v, a.v, b.v)}; }
}  // namespace
#include "gram/kernels.inl"

}  // namespace qk::gram::avx512_bf16

#include "simd/close.h"
