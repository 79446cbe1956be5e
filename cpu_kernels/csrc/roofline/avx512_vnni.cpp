#include "roofline/roofline.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")

namespace qk::roofline::avx512_vnni {

constexpr int chains = 16;  // latency 4 to 5 x 2 a cycle, rounded up

int64_t int8_chains(int64_t repeats) {
    __m512i sum[chains];
    for (auto& value : sum) value = _mm512_setzero_si512();
    const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
    for (int64_t i = 0; i < repeats; i++)
        for (int c = 0; c < chains; c++) sum[c] = _mm512_dpbusd_epi32(sum[c], a, b);
    for (auto& value : sum) asm volatile("" : "+v"(value));
    return repeats * chains * 64 * 2;
}

int64_t int16_chains(int64_t repeats) {
    __m512i sum[chains];
    for (auto& value : sum) value = _mm512_setzero_si512();
    const __m512i a = _mm512_set1_epi16(3), b = _mm512_set1_epi16(5);
    for (int64_t i = 0; i < repeats; i++)
        for (int c = 0; c < chains; c++) sum[c] = _mm512_dpwssd_epi32(sum[c], a, b);
    for (auto& value : sum) asm volatile("" : "+v"(value));
    return repeats * chains * 32 * 2;
}

}  // namespace qk::roofline::avx512_vnni

#pragma GCC pop_options
