// Independent chains of one operation, which run side by side. Include it inside a namespace and a target region.
#ifndef QK_INTRINSICS
#error "roofline/chains.inl: include simd/open_*.h before this file"
#endif

// `repeats` steps of each chain; step(sum) is a chain's next sum. The number of steps times `operations`, of one step.
template <int chains, class Sum, class Step>
[[gnu::always_inline]] inline int64_t run_chains(Sum start, int64_t repeats, int64_t operations, const Step& step) {
    Sum sum[chains];
    for (auto& value : sum) value = start;
    for (int64_t i = 0; i < repeats; i++)
        for (int c = 0; c < chains; c++) sum[c] = step(sum[c]);
    for (auto& value : sum) asm volatile("" : "+v"(value));  // used, as far as the compiler knows
    return repeats * chains * operations;
}
