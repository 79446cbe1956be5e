#include "roofline/roofline.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")

namespace qk::roofline::avx512 {

uint64_t read(const uint8_t* data, int64_t size) {
    __m512i sum[8];
    for (auto& value : sum) value = _mm512_setzero_si512();
    for (int64_t i = 0; i < size; i += 512)
        for (int j = 0; j < 8; j++) sum[j] = _mm512_xor_epi64(sum[j], _mm512_load_si512(data + i + j * 64));
    for (int j = 1; j < 8; j++) sum[0] = _mm512_xor_epi64(sum[0], sum[j]);
    return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum[0]));
}

constexpr int chains = 16;  // latency 4 to 5 x 2 a cycle, rounded up

int64_t fp32_chains(int64_t repeats) {
    __m512 sum[chains];
    for (auto& value : sum) value = _mm512_setzero_ps();
    const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
    for (int64_t i = 0; i < repeats; i++)
        for (int c = 0; c < chains; c++) sum[c] = _mm512_fmadd_ps(sum[c], a, b);
    for (auto& value : sum) asm volatile("" : "+v"(value));
    return repeats * chains * 16 * 2;
}

}  // namespace qk::roofline::avx512

#pragma GCC pop_options
