// A step of a tile by AVX2, which has no instruction that adds dots to 32-bit sums. Included after place.inl.
//
// Narrow codes are unsigned. 16 bits have room for the sums of several groups, which vpmaddwd with ones widens to 32
// bits. Codes of 8 bits are signed, and each group is widened at once; the tokens share their magnitudes.
//
// Operations per step, token and 8 rows, with the conversion, multiplies and FMAs. Two ports take those that multiply,
// convert, shift or give a sign, which bounds 256 products at half as many cycles:
//     4 bits   8 vpmaddubsw, 7 vpaddw, 1 vpmaddwd; step 20 (12 of them on the two ports), step_minimum 20 (13),
//              span 19 (11), half 23 (15)
//     5 bits   8 vpmaddubsw, 6 vpaddw, 2 vpmaddwd; step 21 (13), step_minimum 21 (14)
//     6 bits   8 vpmaddubsw, 4 vpaddw, 4 vpmaddwd; step_half_minima 24 (17)
//              with lowers_pairs 8 vpmaddubsw, 6 vpaddw, 2 vpsubw, 2 vpmaddwd; half 23 (15)
//     7 bits   8 vpmaddubsw, 8 vpmaddwd, 7 vpaddd; step 27 (19), half 29 (21)
//     8 bits   8 vpsignb, 8 vpmaddubsw, 8 vpmaddwd, 7 vpaddd; step 34 (27), span 33 (26)
// On Zen 5 only products, multiplies and FMAs share two ports, and four take everything: 8 bits need 9 cycles there and
// take 11.4, 4 bits need 6 and take 6.7. Codes of 8 bits as 16 bits would need no signs: 16 vpmaddwd, but twice the
// activations, and they took 12.5.
// Loads are 8 P groups and 8 T times 4 activations for T tokens of P panels, two per cycle: 56 for the 200 operations
// of a step of 5 x 2.

template <int tokens, int panels>
using TileSums = Ints[tokens][panels];

template <int panels>
inline void load_group(const TileOf<panels>& tile, int step, int g, Bytes* codes) {
    const int64_t at = step * int64_t{step_groups * group_bytes} + tile.row * 4 + g * group_bytes;
    for (int p = 0; p < panels; p++) codes[p] = load_codes(tile.stretch[p].codes + at);
}

inline Bytes four_activations(const ActivationBlock& x, int group) { return splat_four(four_codes(x, group)); }

// Whether the sums of lifted codes are taken back to those of the codes in 16 bits. Sums of twice as many groups may
// then wrap on the way, as those of the codes fit: 2 * 32 * 127 * 4. Codes of 5 and 7 bits gained nothing by it.
constexpr bool lowers_pairs(Sums sums, int bits) { return bits == 6 && stretch_lift(sums, bits) != 0; }

// Groups whose products are added in 16 bits
constexpr int run_of(Sums sums, int bits, int num_groups) {
    return std::min(groups_per_run(lowers_pairs(sums, bits) ? bits - 1 : bits), num_groups);
}

// Sums over activations that all rows of a tile share; empty for most widths.
template <Sums sums, int bits, int tokens, bool = lowers_pairs(sums, bits)>
struct TileInput {
    template <int panels>
    explicit TileInput(const TileOf<panels>&) {}
};

// Sums of lift * x over the groups of a run: those of the first two k of each group, and those of the last two.
template <Sums sums, int bits, int tokens>
struct TileInput<sums, bits, tokens, true> {
    alignas(32) int32_t lifts[tokens][stretch_steps][step_groups];  // for each group the sums of its run

    template <int panels>
    explicit TileInput(const TileOf<panels>& tile) {
        static_assert(run_of(sums, bits, step_groups / scales_per_step(sums)) == 4);
        const Bytes lift = splat_four(stretch_lift(sums, bits) * 0x01010101);
        for (int step = 0; step < tile.stretch->num_steps; step++)
            for (int m = 0; m < tokens; m++)
                store_pairs(lifts[m][step], sum_of_fours(multiply(lift, codes_of(tile.block(m, step)))));
    }
    Pairs at(int m, int step, int g) const { return {splat_four(lifts[m][step][g]).v}; }
};

// Unsigned codes of fewer than 8 bits: sums of the groups [first, last), which include the lift of the codes unless
// pairs are lowered.
template <Sums sums, int bits, int first, int last, int tokens, int panels>
[[gnu::always_inline]] inline void sum_narrow(const TileOf<panels>& tile, const TileInput<sums, bits, tokens>& shared,
                                              int step, TileSums<tokens, panels>& sum) {
    constexpr int run = run_of(sums, bits, last - first);
    const Pairs ones = one_each();
#pragma GCC unroll 8
    for (int begin = first; begin < last; begin += run) {
        Pairs pairs[tokens][panels];
#pragma GCC unroll 8
        for (int i = 0; i < run; i++) {
            Bytes codes[panels];
            load_group(tile, step, begin + i, codes);
#pragma GCC unroll 8
            for (int m = 0; m < tokens; m++) {
                const Bytes x = four_activations(tile.block(m, step), begin + i);
                for (int p = 0; p < panels; p++) {
                    const Pairs product = multiply(codes[p], x);
                    pairs[m][p] = i == 0 ? product : add(pairs[m][p], product);
                }
            }
        }
#pragma GCC unroll 8
        for (int m = 0; m < tokens; m++) {
            for (int p = 0; p < panels; p++) {
                if constexpr (lowers_pairs(sums, bits)) pairs[m][p] = subtract(pairs[m][p], shared.at(m, step, begin));
                sum[m][p] = begin == first ? widen(pairs[m][p], ones) : add(sum[m][p], widen(pairs[m][p], ones));
            }
        }
    }
}

// Signed codes of 8 bits
template <int first, int last, int tokens, int panels>
[[gnu::always_inline]] inline void sum_signed(const TileOf<panels>& tile, int step, TileSums<tokens, panels>& sum) {
    const Pairs ones = one_each();
#pragma GCC unroll 8
    for (int g = first; g < last; g++) {
        Bytes codes[panels], magnitude[panels];
        load_group(tile, step, g, codes);
        for (int p = 0; p < panels; p++) magnitude[p] = in_register(absolute(codes[p]));
#pragma GCC unroll 8
        for (int m = 0; m < tokens; m++) {
            const Bytes x = four_activations(tile.block(m, step), g);
            for (int p = 0; p < panels; p++) {
                const Pairs product = multiply(magnitude[p], with_sign_of(x, codes[p]));
                sum[m][p] = g == first ? widen(product, ones) : add(sum[m][p], widen(product, ones));
            }
        }
    }
}

// Sums of signed codes of the groups [first, last), all of the step or a half
template <Sums sums, int bits, int first, int last, int tokens, int panels>
[[gnu::always_inline]] inline void sum_groups(const TileOf<panels>& tile, const TileInput<sums, bits, tokens>& shared,
                                              int step, TileSums<tokens, panels>& sum) {
    if constexpr (bits == 8) {
        sum_signed<first, last>(tile, step, sum);
    } else {
        sum_narrow<sums, bits, first, last>(tile, shared, step, sum);
        if constexpr (stretch_lift(sums, bits) != 0 && !lowers_pairs(sums, bits)) {
            for (int m = 0; m < tokens; m++) {
                const ActivationBlock& x = tile.block(m, step);
                const Ints offset = bias<stretch_lift(sums, bits)>(
                    last - first == step_groups ? x.offset : x.offset_half[first / (step_groups / 2)]);
                for (int p = 0; p < panels; p++) sum[m][p] = sum[m][p] + offset;
            }
        }
    }
}

// y += a step with scales of its own. Panels are the inner loop: they share the broadcasts of a token.
template <Sums sums, int bits, int tokens, int panels>
[[gnu::always_inline]] inline void add_step_to(const TileOf<panels>& tile, const TileInput<sums, bits, tokens>& shared,
                                               int step, Floats (&y)[tokens][panels]) {
    constexpr int num_minima = minima_per_step(sums), half = step_groups / 2;
    if constexpr (sums == Sums::half) {
        TileSums<tokens, panels> low, high;
        sum_groups<sums, bits, 0, half>(tile, shared, step, low);
        sum_groups<sums, bits, half, step_groups>(tile, shared, step, high);
        for (int m = 0; m < tokens; m++) {
            for (int p = 0; p < panels; p++) {
                const Ints both[] = {low[m][p], high[m][p]};
                const Floats scale[] = {tile.scale(p, 2 * step), tile.scale(p, 2 * step + 1)};
                y[m][p] = add_halves(both, scale, tile.block(m, step), y[m][p]);
            }
        }
    } else {
        TileSums<tokens, panels> sum;
        sum_groups<sums, bits, 0, step_groups>(tile, shared, step, sum);
        for (int m = 0; m < tokens; m++) {
            const ActivationBlock& x = tile.block(m, step);
            for (int p = 0; p < panels; p++) {
                if constexpr (num_minima != 0) {
                    Floats minimum[num_minima];
                    for (int i = 0; i < num_minima; i++) minimum[i] = tile.minimum(p, step * num_minima + i);
                    y[m][p] = add_minimum<sums>(minimum, x, y[m][p]);
                }
                y[m][p] = add_step(sum[m][p], tile.scale(p, step), x, y[m][p]);
            }
        }
    }
}

// span += a step of span i, whose scale comes later
template <Sums sums, int bits, int tokens, int panels>
[[gnu::always_inline]] inline void add_step_to_span(const TileOf<panels>& tile,
                                                    const TileInput<sums, bits, tokens>& shared, int step, int i,
                                                    Floats (&span)[tokens][panels]) {
    TileSums<tokens, panels> sum;
    sum_groups<sums, bits, 0, step_groups>(tile, shared, step, sum);
    for (int m = 0; m < tokens; m++) {
        const ActivationBlock& x = tile.block(m, step);
        for (int p = 0; p < panels; p++) {
            span[m][p] = multiply_add(to_floats(sum[m][p]), splat(x.scale), span[m][p]);
            if constexpr (sums == Sums::span_zero) {
                const Floats zero[] = {tile.minimum(p, i)};
                span[m][p] = add_minimum<sums>(zero, x, span[m][p]);
            }
        }
    }
}
