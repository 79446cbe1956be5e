#include "roofline/roofline.h"
#include "simd/open_avx512_bf16.h"

namespace qk::roofline::avx512_bf16 {
#include "roofline/chains.inl"

constexpr int chains = 16;  // latency 5 to 6 x 2 a cycle, rounded up

int64_t bf16_chains(int64_t repeats) {
    const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
    return run_chains<chains>(_mm512_setzero_ps(), repeats, 32 * 2,
                              [&](__m512 sum) { return _mm512_dpbf16_ps(sum, a, a); });
}

}  // namespace qk::roofline::avx512_bf16

#include "simd/close.h"
