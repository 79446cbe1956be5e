// Independent operations, which run side by side. Include it inside a namespace and a target region.
#ifndef QK_INTRINSICS
#error "roofline/chains.inl: include simd/open_*.h before this file"
#endif

// All loops over the chains are unrolled. Otherwise the sums are an array in memory, and each step stores one: half the
// rate on a processor with two multiplies and one store per cycle, which a product in registers beats.
#define QK_UNROLL _Pragma("GCC unroll 16")

// `repeats` steps of each chain; step(sum) is a chain's next sum. The number of steps times `operations`, of one step.
template <int chains, class Sum, class Step>
[[gnu::always_inline]] inline int64_t run_chains(Sum start, int64_t repeats, int64_t operations, const Step& step) {
    Sum sum[chains];
    QK_UNROLL
    for (auto& value : sum) {
        value = start;
        asm volatile("" : "+v"(value));  // else the chains would be one
    }
    for (int64_t i = 0; i < repeats; i++) {
        QK_UNROLL
        for (int c = 0; c < chains; c++) sum[c] = step(sum[c]);
    }
    QK_UNROLL
    for (auto& value : sum) asm volatile("" : "+v"(value));  // used, as far as the compiler knows
    return repeats * chains * operations;
}

// The same for a multiplication whose products a second instruction would add: only the first runs here. The
// number of additions differs by format, and their ports by processor: no kernel is faster than this.
template <int chains, class Factor, class Multiply>
[[gnu::always_inline]] inline int64_t run_products(Factor a, int64_t repeats, int64_t operations,
                                                   const Multiply& multiply) {
    for (int64_t i = 0; i < repeats; i++) {
        QK_UNROLL
        for (int c = 0; c < chains; c++) {
            asm volatile("" : "+v"(a));  // else the product would be taken out of the loop
            const auto product = multiply(a);
            asm volatile("" : : "v"(product));
        }
    }
    return repeats * chains * operations;
}
