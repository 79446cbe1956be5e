// A step of one to eight tokens by AVX2, which sums narrow codes in 16 bits, see lanes_avx2.inl. Included after lanes
// and accumulate.
//
// Operations per step, token and 8 rows are those of tile/pairs.inl. One token of Q4_0 takes 20, and unpacking 14: a
// shift and two masks for each of 4 vectors, then the scale. These 34 meet 144 bytes. Groups are the outer loop: each
// is prepared once, and 8 tokens have 8 sums in registers.

template <class Format, int first, int last, int tokens>
[[gnu::always_inline]] inline void sum_groups(const Bytes* codes, const std::byte* x, size_t token_bytes, Pairs ones,
                                              Ints* sum) {
    constexpr int bits = tile_bits(Format::code_bits), run = std::min(groups_per_run(bits), last - first);
    const auto four = [&](int m, int g) {
        return splat_four(four_codes(*reinterpret_cast<const ActivationBlock*>(x + m * token_bytes), g));
    };
#pragma GCC unroll 8
    for (int begin = first; begin < last; begin += run) {
        Pairs pairs[tokens];
#pragma GCC unroll 8
        for (int i = 0; i < run; i++) {
            const int g = begin + i;
            if constexpr (bits == 8) {
                const Bytes q = Format::lift == 0 ? codes[g] : codes[g] + -Format::lift;
                const Bytes magnitude = in_register(absolute(q));
#pragma GCC unroll 8
                for (int m = 0; m < tokens; m++) pairs[m] = multiply(magnitude, with_sign_of(four(m, g), q));
            } else {
#pragma GCC unroll 8
                for (int m = 0; m < tokens; m++) {
                    const Pairs product = multiply(codes[g], four(m, g));
                    pairs[m] = i == 0 ? product : add(pairs[m], product);
                }
            }
        }
#pragma GCC unroll 8
        for (int m = 0; m < tokens; m++)
            sum[m] = begin == first ? widen(pairs[m], ones) : add(sum[m], widen(pairs[m], ones));
    }
}

template <class Format, int tokens>
inline void multiply_step(const uint8_t* block, const uint8_t* from, int row, int step, const Floats* scale,
                          const Floats* minimum, const std::byte* x, size_t token_bytes, Floats* y, Floats* span) {
    constexpr Sums sums = Format::sums;
    constexpr int num_dots = scales_per_step(sums), groups = step_groups / num_dots;
    constexpr int lift = tile_bits(Format::code_bits) == 8 ? 0 : Format::lift;
    const Pairs ones = one_each();
    // Otherwise GCC loads the activations once for both halves of a panel and stores them, which takes longer.
    if constexpr (tokens > 2) asm("" : "+r"(x));
    Bytes codes[step_groups];
    Format::codes(block, from, row, step, codes);
    Ints sum[num_dots][tokens];
    sum_groups<Format, 0, groups, tokens>(codes, x, token_bytes, ones, sum[0]);
    if constexpr (num_dots == 2) sum_groups<Format, groups, step_groups, tokens>(codes, x, token_bytes, ones, sum[1]);
    for (int m = 0; m < tokens; m++) {
        const auto& x_block = *reinterpret_cast<const ActivationBlock*>(x + m * token_bytes);
        Ints own[num_dots];
        for (int h = 0; h < num_dots; h++) {
            own[h] = sum[h][m];
            if constexpr (lift != 0)
                own[h] = own[h] + bias<lift>(num_dots == 2 ? x_block.offset_half[h] : x_block.offset);
        }
        add_sums<sums>(own, scale, minimum, x_block, y[m], span[m]);
    }
}
