// fp32_chains over `Float` and `chains` of the region. Include it after simd/float_*.inl and roofline/chains.inl.
#ifndef QK_SIMD_FLOAT
#error "roofline/fp32_chains.inl: include simd/float_*.inl before this file"
#endif

int64_t fp32_chains(int64_t repeats) {
    const Float a = splat(0.5f), b = splat(0.25f);
    return run_chains<chains>(splat(0.0f).v, repeats, width * 2, [&](auto sum) { return fma({sum}, a, b).v; });
}
