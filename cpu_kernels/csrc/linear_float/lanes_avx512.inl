// 16 rows per register. Include it inside a target region.
#ifndef QK_INTRINSICS
#error "linear_float/lanes_avx512.inl: include simd/target.h before this file"
#endif

struct Lanes {
    using Sum = __m512;
    static constexpr int rows = 16;

    static void keep(Sum& sum) { asm("" : "+v"(sum)); }
    static Sum zero() { return _mm512_setzero_ps(); }
    [[gnu::always_inline]] static void store(Sum sum, float* y, int64_t num_rows, bool add) {
        const auto mask = static_cast<__mmask16>((1u << num_rows) - 1);
        if (add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), sum);
        _mm512_mask_storeu_ps(y, mask, sum);
    }
};
