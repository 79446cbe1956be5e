// 2^x for x <= 0, 0 below about 2^-150; NaN stays. Relative error at most 2^-23: 2e-9 of the
// polynomial (fitted to 2^f for |f| <= 1/2, relative error levelled) and roundings of order 2^-24 f.
#ifndef QK_ATTENTION_ATTEND
#error "attention/exp2.inl: attention/attend.inl includes this file"
#endif
inline Float exp2(Float x) {
    x = max(splat(lowest_power), x);
    const Float n = round(x), f = x - n;
    Float p = splat(1.5345810e-4f);
    p = fma(p, f, splat(1.3399931e-3f));
    p = fma(p, f, splat(9.6184891e-3f));
    p = fma(p, f, splat(5.5503286e-2f));
    p = fma(p, f, splat(2.4022646e-1f));
    p = fma(p, f, splat(6.9314718e-1f));
    p = fma(p, f, splat(1.0f));
    return scale_by_power(p, n);
}
