#include "gram/gram.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace qk::gram::avx2 {

constexpr Isa this_isa = Isa::avx2;
constexpr int width = 8, num_rows = 4, num_vectors = 2;  // 8 sums, 4 halves of words, 2 of a row: 14 of 16 registers

struct Float { __m256 v; };
struct Words { __m256i v; };

inline Float load(const float* from) { return {_mm256_loadu_ps(from)}; }
inline void store(float* to, Float a) { _mm256_storeu_ps(to, a.v); }
inline Words load_words(const uint32_t* from) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))}; }
inline Words splat_word(uint32_t word) { return {_mm256_set1_epi32(static_cast<int>(word))}; }
inline __m256 even(Words a) { return _mm256_castsi256_ps(_mm256_slli_epi32(a.v, 16)); }
inline __m256 odd(Words a) {
    return _mm256_castsi256_ps(_mm256_and_si256(a.v, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline Float multiply_add(Float sum, Words a, Words b) {
    return {_mm256_fmadd_ps(even(a), even(b), _mm256_fmadd_ps(odd(a), odd(b), sum.v))};
}

#include "gram/kernels.inl"

}  // namespace qk::gram::avx2

#pragma GCC pop_options
