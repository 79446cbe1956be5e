// silu(gate) * up in the lanes of a register. Include it after simd/int_*.inl.
#ifndef QK_SIMD_INT
#error "simd/silu.inl: include simd/int_*.inl before this file"
#endif
#define QK_SIMD_SILU

// e^t; infinity from 104 on, too small to change 1 below -104. NaN passes.
inline Float exponential(Float t) {
    const Float limit = splat(104);
    t = max(splat(0) - limit, min(limit, t));                             // both return t if it is NaN
    const Float n = round(min(t * splat(0x1.715476p+0f), splat(151)));    // t / ln 2; 151 where t is NaN
    // ln 2 in two parts, of which the first has 16 bits: its product with n, of 8 bits, is exact.
    const Float r = (t - n * splat(0x1.62e4p-1f)) - n * splat(0x1.7f7d1cp-20f);
    // |r| <= ln 2 / 2: the first term left out of the series is r^8 / 8! < 2^-27 of the result
    constexpr float series[] = {1 / 5040.f, 1 / 720.f, 1 / 120.f, 1 / 24.f, 1 / 6.f, 1 / 2.f, 1.f, 1.f};
    Float power = splat(series[0]);
    for (int i = 1; i < 8; i++) power = power * r + splat(series[i]);
    // 2^n as two factors, as n itself may be no exponent of a float: h1 + h2 = n + 254, both above 0.
    const Int biased = to_int(n + splat(254));
    const Int first = biased >> 1, second = biased - first;
    return power * float_of_bits(first << 23) * float_of_bits(second << 23);
}

inline Float silu_mul(Float gate, Float up) { return gate / (splat(1) + exponential(splat(0) - gate)) * up; }
