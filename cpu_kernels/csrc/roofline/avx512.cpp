#include "roofline/roofline.h"
#include "simd/open_avx512.h"

namespace qk::roofline::avx512 {
#include "roofline/chains.inl"
#include "simd/float_avx512.inl"
#include "simd/int_avx512.inl"

uint64_t read(const uint8_t* data, int64_t size) {
    __m512i sum[8];
    for (auto& value : sum) value = _mm512_setzero_si512();
    for (int64_t i = 0; i < size; i += 512)
        for (int j = 0; j < 8; j++) sum[j] = _mm512_xor_epi64(sum[j], _mm512_load_si512(data + i + j * 64));
    for (int j = 1; j < 8; j++) sum[0] = _mm512_xor_epi64(sum[0], sum[j]);
    return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum[0]));
}

constexpr int chains = 16;  // latency 4 to 5 x 2 a cycle, rounded up

// As in avx2.cpp
int64_t int8_chains(int64_t repeats) {
    const __m512i b = _mm512_set1_epi8(5);
    return run_products<chains>(_mm512_set1_epi8(3), repeats, 64 * 2,
                                [&](__m512i a) { return _mm512_maddubs_epi16(a, b); });
}

inline Int multiply_words(Int a, Int b) { return {_mm512_madd_epi16(a.v, b.v)}; }

#include "roofline/vector_chains.inl"

}  // namespace qk::roofline::avx512

#include "simd/close.h"
