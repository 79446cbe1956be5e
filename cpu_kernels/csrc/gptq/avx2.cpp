#include "gptq/gptq.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace qk::gptq::avx2 {

constexpr Isa this_isa = Isa::avx2;
constexpr int width = 8, num_vectors = 2;  // 8 sums, 2 vectors, 1 coefficient: 11 of 16 registers

struct Float { __m256 v; };

inline Float load(const float* from) { return {_mm256_loadu_ps(from)}; }
inline void store(float* to, Float a) { _mm256_storeu_ps(to, a.v); }
inline Float splat(float value) { return {_mm256_set1_ps(value)}; }
inline Float fma(Float a, Float b, Float c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Float operator+(Float a, Float b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Float operator-(Float a, Float b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Float operator*(Float a, Float b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Float operator/(Float a, Float b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Float min(Float a, Float b) { return {_mm256_min_ps(a.v, b.v)}; }
inline Float max(Float a, Float b) { return {_mm256_max_ps(a.v, b.v)}; }
inline Float round_even(Float a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline __m256 is_zero(Float a) { return _mm256_cmp_ps(a.v, _mm256_setzero_ps(), _CMP_EQ_OQ); }
inline Float select(__m256 mask, Float yes, Float no) { return {_mm256_blendv_ps(no.v, yes.v, mask)}; }

#include "gptq/kernels.inl"

}  // namespace qk::gptq::avx2

#pragma GCC pop_options
