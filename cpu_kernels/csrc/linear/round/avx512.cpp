#include "linear/block_input.h"
#include "simd/open_avx512.h"

namespace qk::linear::avx512 {

// vpsadbw adds 8 unsigned bytes at once: the codes and 128 each.
static int32_t sum_of(__m128i codes) {
    const __m128i sums = _mm_sad_epu8(_mm_xor_si128(codes, _mm_set1_epi8(-128)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

void round_row(const float* x, int64_t num_blocks, ActivationBlock* out) {
    const __m512i abs_mask = _mm512_set1_epi32(0x7fffffff);
    for (int64_t i_block = 0; i_block < num_blocks; i_block++, x += ActivationBlock::size, out++) {
        const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
        const __m512i abs_low = _mm512_and_epi32(_mm512_castps_si512(low), abs_mask);
        const __m512i abs_high = _mm512_and_epi32(_mm512_castps_si512(high), abs_mask);
        // Absolute floats order like their bits, NaN last.
        const uint32_t absmax_bits = _mm512_reduce_max_epu32(_mm512_max_epu32(abs_low, abs_high));
        const float absmax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(absmax_bits))));
        const bool finite = absmax_bits < infinity_bits;
        const bool zero = !finite || absmax < smallest_absmax;
        const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / absmax);
        const __mmask16 keep = zero ? 0 : 0xffff;
        const __m512i q_low = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(low, inverse));
        const __m512i q_high = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(high, inverse));
        const __m128i codes_low = _mm512_cvtepi32_epi8(q_low), codes_high = _mm512_cvtepi32_epi8(q_high);
        _mm_store_si128(reinterpret_cast<__m128i*>(out->codes), codes_low);
        _mm_store_si128(reinterpret_cast<__m128i*>(out->codes + 16), codes_high);
        const int32_t sum[2] = {sum_of(codes_low), sum_of(codes_high)};
        finish_block(*out, sum, absmax, finite, zero);
    }
}

}  // namespace qk::linear::avx512

#include "simd/close.h"
