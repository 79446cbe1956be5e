#include "roofline/roofline.h"
#include "simd/open_avx_vnni.h"

namespace qk::roofline::avx_vnni {
#include "roofline/chains.inl"

int64_t int8_chains(int64_t repeats) {
    constexpr int chains = 12;  // of 16 registers: latency 4 to 5 x 2 a cycle, and the operands
    const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    return run_chains<chains>(_mm256_setzero_si256(), repeats, 32 * 2,
                              [&](__m256i sum) { return _mm256_dpbusd_avx_epi32(sum, a, b); });
}

}  // namespace qk::roofline::avx_vnni

#include "simd/close.h"
