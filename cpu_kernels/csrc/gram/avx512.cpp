#include "gram/gram.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")

namespace qk::gram::avx512 {

constexpr Isa this_isa = Isa::avx512;
constexpr int width = 16, num_rows = 4, num_vectors = 4;  // 16 sums, 8 halves of words, 2 of a row: 26 of 32 registers

struct Float { __m512 v; };
struct Words { __m512i v; };

inline Float load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline void store(float* to, Float a) { _mm512_storeu_ps(to, a.v); }
inline Words load_words(const uint32_t* from) { return {_mm512_loadu_si512(from)}; }
inline Words splat_word(uint32_t word) { return {_mm512_set1_epi32(static_cast<int>(word))}; }
inline __m512 even(Words a) { return _mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16)); }
inline __m512 odd(Words a) {
    return _mm512_castsi512_ps(_mm512_and_si512(a.v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline Float multiply_add(Float sum, Words a, Words b) {
    return {_mm512_fmadd_ps(even(a), even(b), _mm512_fmadd_ps(odd(a), odd(b), sum.v))};
}

#include "gram/kernels.inl"

}  // namespace qk::gram::avx512

#pragma GCC pop_options
