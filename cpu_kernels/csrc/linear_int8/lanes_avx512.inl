// 16 rows per register, and the rounding of activations. Include it inside a target region.
#ifndef QK_INTRINSICS
#error "linear_int8/lanes_avx512.inl: include simd/target.h before this file"
#endif
#ifndef QK_LINEAR_INT8_KERNELS
#error "linear_int8/lanes_avx512.inl: include linear_int8/kernels.inl before this file"
#endif

struct Lanes {
    // Not __m512i, which is eight 64-bit numbers: sums that live through a loop as both take twice the registers.
    using Sum [[gnu::vector_size(64)]] = uint32_t;
    static constexpr int rows = 16;
    static constexpr int vector_bytes = 64;

    static void keep(Sum& sum) { asm("" : "+v"(sum)); }
    static Sum broadcast(int32_t value) { return reinterpret_cast<Sum>(_mm512_set1_epi32(value)); }

    [[gnu::always_inline]] static void store(Sum sum, const float* weight_scale, Scales by, float* y,
                                             int64_t num_rows) {
        const __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(weight_scale), _mm512_set1_ps(by.weight_scale));
        const __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(reinterpret_cast<__m512i>(sum)), scale);
        _mm512_mask_storeu_ps(y, static_cast<__mmask16>((1u << num_rows) - 1),
                              _mm512_mul_ps(value, _mm512_set1_ps(by.result)));
    }
};

static __mmask16 first(int64_t count) { return static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1); }

float absmax(const float* x, int64_t size) {
    __m512i most = _mm512_setzero_si512();  // absolute floats order like their bits, NaN last
    for (int64_t k = 0; k < size; k += 16) {
        const __m512i bits = _mm512_castps_si512(_mm512_maskz_loadu_ps(first(size - k), x + k));
        most = _mm512_max_epu32(most, _mm512_and_epi32(bits, _mm512_set1_epi32(0x7fffffff)));
    }
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(_mm512_reduce_max_epu32(most)))));
}

int32_t codes(const float* x, int64_t size, float scale, int8_t* out) {
    const __m512 divisor = _mm512_set1_ps(scale);
    const __m512 least = _mm512_set1_ps(-128), most = _mm512_set1_ps(127);
    __m512i sum = _mm512_setzero_si512();
    for (int64_t k = 0; k < size; k += 16) {
        const __mmask16 mask = first(size - k);
        const __m512 units = _mm512_div_ps(_mm512_maskz_loadu_ps(mask, x + k), divisor);
        const __mmask16 number = _mm512_mask_cmp_ps_mask(mask, units, units, _CMP_ORD_Q);
        const __m512 clamped = _mm512_min_ps(_mm512_max_ps(units, least), most);
        const __m512i q = _mm512_maskz_cvtps_epi32(number, clamped);
        sum = _mm512_add_epi32(sum, q);
        _mm_mask_storeu_epi8(out + k, mask, _mm512_cvtepi32_epi8(q));
    }
    return _mm512_reduce_add_epi32(sum);
}
