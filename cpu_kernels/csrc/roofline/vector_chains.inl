// fp32_chains and int16_chains over `chains`, the lanes and multiply_words of the region. Include it after simd/int_*.inl
// and roofline/chains.inl.
#ifndef QK_SIMD_INT
#error "roofline/vector_chains.inl: include simd/int_*.inl before this file"
#endif

int64_t fp32_chains(int64_t repeats) {
    const Float a = splat(0.5f), b = splat(0.25f);
    return run_chains<chains>(splat(0.0f).v, repeats, width * 2, [&](auto sum) { return fma({sum}, a, b).v; });
}

int64_t int16_chains(int64_t repeats) {
    const Int b = splat_int(0x00050005);
    return run_products<chains>(splat_int(0x00030003).v, repeats, 2 * width * 2,
                                [&](auto a) { return multiply_words({a}, b).v; });
}
