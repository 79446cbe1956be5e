#include "roofline/roofline.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")

namespace qk::roofline::avx512_bf16 {

constexpr int chains = 16;  // latency 5 to 6 x 2 a cycle, rounded up

int64_t bf16_chains(int64_t repeats) {
    __m512 sum[chains];
    for (auto& value : sum) value = _mm512_setzero_ps();
    const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
    for (int64_t i = 0; i < repeats; i++)
        for (int c = 0; c < chains; c++) sum[c] = _mm512_dpbf16_ps(sum[c], a, a);
    for (auto& value : sum) asm volatile("" : "+v"(value));
    return repeats * chains * 32 * 2;
}

}  // namespace qk::roofline::avx512_bf16

#pragma GCC pop_options
