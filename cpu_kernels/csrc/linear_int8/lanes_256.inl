// 8 rows per register. Include it inside a target region.
#ifndef QK_INTRINSICS
#error "linear_int8/lanes_256.inl: include simd/target.h before this file"
#endif
#ifndef QK_LINEAR_INT8_KERNELS
#error "linear_int8/lanes_256.inl: include linear_int8/kernels.inl before this file"
#endif

struct Lanes {
    using Sum = __m256i;
    static constexpr int rows = 8;
    static constexpr int vector_bytes = 32;

    static void keep(Sum& sum) { asm("" : "+x"(sum)); }
    static Sum broadcast(int32_t value) { return _mm256_set1_epi32(value); }

    static void store(Sum sum, const float* weight_scale, Scales by, float* y, int64_t num_rows) {
        const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(weight_scale), _mm256_set1_ps(by.weight_scale));
        const __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale);
        const __m256 scaled = _mm256_mul_ps(value, _mm256_set1_ps(by.result));
        float all[rows];
        _mm256_storeu_ps(all, scaled);
        std::copy_n(all, num_rows, y);
    }
};
