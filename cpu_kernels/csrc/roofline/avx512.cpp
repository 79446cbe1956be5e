#include "roofline/roofline.h"
#include "simd/open_avx512.h"

namespace qk::roofline::avx512 {
#include "roofline/chains.inl"

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
    const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
    return run_chains<chains>(_mm512_setzero_ps(), repeats, 16 * 2,
                              [&](__m512 sum) { return _mm512_fmadd_ps(sum, a, b); });
}

int64_t int16_chains(int64_t repeats) {
    __m512i a = _mm512_set1_epi16(3);
    const __m512i b = _mm512_set1_epi16(5);
    return run_chains<chains>(_mm512_setzero_si512(), repeats, 32 * 2, [&](__m512i sum) {
        asm volatile("" : "+v"(a));
        return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
    });
}

}  // namespace qk::roofline::avx512

#include "simd/close.h"
