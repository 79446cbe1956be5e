#include "roofline/roofline.h"
#include "simd/open_avx512_vnni.h"

namespace qk::roofline::avx512_vnni {
#include "roofline/chains.inl"

constexpr int chains = 16;  // latency 4 to 5 x 2 a cycle, rounded up

int64_t int8_chains(int64_t repeats) {
    const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
    return run_chains<chains>(_mm512_setzero_si512(), repeats, 64 * 2,
                              [&](__m512i sum) { return _mm512_dpbusd_epi32(sum, a, b); });
}

int64_t int16_chains(int64_t repeats) {
    const __m512i a = _mm512_set1_epi16(3), b = _mm512_set1_epi16(5);
    return run_chains<chains>(_mm512_setzero_si512(), repeats, 32 * 2,
                              [&](__m512i sum) { return _mm512_dpwssd_epi32(sum, a, b); });
}

}  // namespace qk::roofline::avx512_vnni

#include "simd/close.h"
