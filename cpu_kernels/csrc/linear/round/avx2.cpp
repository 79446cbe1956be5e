#include "linear/block_input.h"
#include "simd/open_avx2.h"

namespace qk::linear::avx2 {

static uint32_t reduce_max(__m256i value) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

static int32_t reduce_add(__m256i value) {
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(sum);
}

void round_row(const float* x, int64_t num_blocks, ActivationBlock* out) {
    const __m256i abs_mask = _mm256_set1_epi32(0x7fffffff);
    for (int64_t i_block = 0; i_block < num_blocks; i_block++, x += ActivationBlock::size, out++) {
        __m256 part[4];
        __m256i absmax8 = _mm256_setzero_si256();  // absolute floats order like their bits, NaN last
        for (int i = 0; i < 4; i++) {
            part[i] = _mm256_loadu_ps(x + i * 8);
            absmax8 = _mm256_max_epu32(absmax8, _mm256_and_si256(_mm256_castps_si256(part[i]), abs_mask));
        }
        const uint32_t absmax_bits = reduce_max(absmax8);
        const float absmax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(absmax_bits))));
        const bool finite = absmax_bits < infinity_bits;
        const bool zero = !finite || absmax < smallest_absmax;
        const __m256 inverse = _mm256_set1_ps(zero ? 0.0f : 127.0f / absmax);
        const __m256i keep = _mm256_set1_epi32(zero ? 0 : -1);
        __m256i q[4];
        for (int i = 0; i < 4; i++) q[i] = _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(part[i], inverse)), keep);
        // The packs work in 128-bit halves; the permutation puts groups of four back in order.
        const __m256i q16_low = _mm256_packs_epi32(q[0], q[1]), q16_high = _mm256_packs_epi32(q[2], q[3]);
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        const __m256i q8 = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(q16_low, q16_high), order);
        _mm256_store_si256(reinterpret_cast<__m256i*>(out->codes), q8);
        const int32_t sum[2] = {reduce_add(_mm256_add_epi32(q[0], q[1])), reduce_add(_mm256_add_epi32(q[2], q[3]))};
        finish_block(*out, sum, absmax, finite, zero);
    }
}

}  // namespace qk::linear::avx2

#include "simd/close.h"
