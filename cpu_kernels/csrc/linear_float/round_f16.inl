// f16 weights as bfloat16. Include it inside a target region with AVX512-BF16.
#ifndef QK_LINEAR_FLOAT_KERNELS
#error "linear_float/round_f16.inl: include linear_float/kernels.inl before this file"
#endif

// size k of a panel of f16 as the panel of bf16 that is nearest: num_pairs pairs of k, the last ones padded with zeros.
static void round_pairs(const std::byte* f16, int64_t size, int64_t num_pairs, std::byte* bf16) {
    // Word 2 i of the result is row i of the even k, word 2 i + 1 that of the odd k, which the conversion put 16 words
    // further.
    alignas(64) uint16_t order[32];
    for (int i = 0; i < 32; i++) order[i] = static_cast<uint16_t>(i % 2 * 16 + i / 2);
    const __m512i interleave = _mm512_load_si512(order);
    const std::byte* const end = bf16 + num_pairs * 64;
    for (int64_t k = 0; k < size; k += 2, f16 += 64, bf16 += 64) {
        const __m512 even = _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(f16)));
        const __m512 odd = k + 1 < size ? _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(f16 + 32)))
                                        : _mm512_setzero_ps();
        const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
        _mm512_store_si512(bf16, _mm512_permutexvar_epi16(interleave, both));
    }
    std::memset(bf16, 0, static_cast<size_t>(end - bf16));
}
