// int16_chains over `Int`, `chains` and dot_words(sum, a, b) of the region, which adds the products of both words of a
// lane. Include it after simd/int_*.inl and roofline/chains.inl.
#ifndef QK_SIMD_INT
#error "roofline/int16_chains.inl: include simd/int_*.inl before this file"
#endif

int64_t int16_chains(int64_t repeats) {
    Int a = splat_int(0x00030003);
    const Int b = splat_int(0x00050005);
    return run_chains<chains>(splat_int(0).v, repeats, 2 * width * 2, [&](auto sum) {
        asm volatile("" : "+v"(a.v));  // else the product would be taken out of the loop
        return dot_words({sum}, a, b).v;
    });
}
