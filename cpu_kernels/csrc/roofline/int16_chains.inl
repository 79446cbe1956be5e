// int16_chains over vpmaddwd of the region. Include it after simd/int_*.inl and roofline/chains.inl.
#ifndef QK_SIMD_INT
#error "roofline/int16_chains.inl: include simd/int_*.inl before this file"
#endif

int64_t int16_chains(int64_t repeats) {
    const Int b = splat_int(0x00050005);
    return run_products<chains>(splat_int(0x00030003).v, repeats, 2 * width * 2,
                                [&](auto a) { return multiply_words({a}, b).v; });
}
