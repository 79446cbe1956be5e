#include "roofline/roofline.h"
#include "simd/open_avx2.h"

namespace qk::roofline::avx2 {
#include "roofline/chains.inl"
#include "simd/float_avx2.inl"
#include "simd/int_avx2.inl"

uint64_t read(const uint8_t* data, int64_t size) {
    __m256i sum[8];
    for (auto& value : sum) value = _mm256_setzero_si256();
    for (int64_t i = 0; i < size; i += 256)
        for (int j = 0; j < 8; j++)
            sum[j] = _mm256_xor_si256(sum[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + j * 32)));
    for (int j = 1; j < 8; j++) sum[0] = _mm256_xor_si256(sum[0], sum[j]);
    return static_cast<uint64_t>(_mm256_extract_epi64(sum[0], 0) ^ _mm256_extract_epi64(sum[0], 1) ^
                                 _mm256_extract_epi64(sum[0], 2) ^ _mm256_extract_epi64(sum[0], 3));
}

constexpr int chains = 12;  // of 16 registers: latency 4 to 5 x 2 a cycle, and the operands

// Without VNNI a product of bytes is vpmaddubsw. Codes of few bits leave room for sums in 16 bits, a vpaddw each; those
// of 8 bits are widened at once by vpmaddwd and vpaddd, so their kernels stay further below this peak.
int64_t int8_chains(int64_t repeats) {
    const __m256i b = _mm256_set1_epi8(5);
    return run_products<chains>(_mm256_set1_epi8(3), repeats, 32 * 2,
                                [&](__m256i a) { return _mm256_maddubs_epi16(a, b); });
}

inline Int multiply_words(Int a, Int b) { return {_mm256_madd_epi16(a.v, b.v)}; }

#include "roofline/vector_chains.inl"

}  // namespace qk::roofline::avx2

#include "simd/close.h"
