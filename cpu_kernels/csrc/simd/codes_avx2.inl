// Rounding of activations to int8 in 8 lanes. Include it inside a namespace and a region with the target avx2.
#ifndef QK_INTRINSICS
#error "simd/codes_avx2.inl: include simd/target.h before the target region"
#endif

// The float whose bits are the largest of 8 unsigned numbers.
static float largest(__m256i bits) {
    __m128i most = _mm_max_epu32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(most));
}

// Writes the first `count` of 8 codes, or all; returns their sum.
static int32_t write_codes(__m256i codes, int64_t count, int8_t* out) {
    int32_t q[8], sum = 0;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), codes);
    for (int64_t i = 0; i < std::min<int64_t>(count, 8); i++) {
        out[i] = static_cast<int8_t>(q[i]);
        sum += q[i];
    }
    return sum;
}
