// A step of a tile by `dot`, which adds the products of a group to 32-bit sums. Included after place.inl.
//
// A tile of T tokens x 16 rows of P panels takes, a step, token and panel, 8 vpdpbusd and on the same two ports
//     step, span_zero 2 more (80 % of the vpdpbusd peak at best), step_minimum and half 3 (73 %),
//     step_half_minima 4 (67 %), span 1 and a bit (86 % at 4 steps a span)
// while conversions go to the others. A load brings 64 bytes, or a broadcast, a cycle: 8 P groups and 8 T times 4
// activations a step, which 8 T P vpdpbusd must cover. So 12 x 1 is bound by loads, and 6 x 2 has room for the scales:
// from the L1 the tiles come to within 0.5 to 0.8 of those 9.25 to 12 operations.

// Nothing: a step reads the activations themselves.
template <Sums, int, int>
struct TileInput {
    template <int panels>
    explicit TileInput(const TileOf<panels>&) {}
};

template <Sums sums, int tokens, int panels>
using StepSums = Ints[tokens][panels][scales_per_step(sums)];

template <Sums sums, int bits, int tokens, int panels>
inline void multiply_step(const TileOf<panels>& tile, int step, StepSums<sums, tokens, panels>& sum) {
    constexpr int num_dots = scales_per_step(sums), groups = step_groups / num_dots, lift = stretch_lift(sums, bits);
    const int64_t first = step * int64_t{step_groups * group_bytes} + tile.row * 4;
    for (int m = 0; m < tokens; m++)
        for (int p = 0; p < panels; p++)
            for (int h = 0; h < num_dots; h++)
                sum[m][p][h] =
                    bias<lift>(num_dots == 2 ? tile.block(m, step).offset_half[h] : tile.block(m, step).offset);
#pragma GCC unroll 8
    for (int g = 0; g < step_groups; g++) {
        Bytes codes[panels];
        for (int p = 0; p < panels; p++) codes[p] = load_codes(tile.stretch[p].codes + first + g * group_bytes);
#pragma GCC unroll 16
        for (int m = 0; m < tokens; m++) {
            const int32_t four = four_codes(tile.block(m, step), g);
            for (int p = 0; p < panels; p++) sum[m][p][g / groups] = dot<lift>(sum[m][p][g / groups], codes[p], four);
        }
    }
}

// Before the dots, for which they have not to wait: after them, the tile takes 5 % longer.
template <Sums sums, int tokens, int panels>
inline void add_minima(const TileOf<panels>& tile, int step, Floats (&y)[tokens][panels]) {
    constexpr int num_minima = minima_per_step(sums);
    for (int p = 0; p < panels; p++) {
        Floats minimum[num_minima];
        for (int i = 0; i < num_minima; i++) minimum[i] = tile.minimum(p, step * num_minima + i);
        for (int m = 0; m < tokens; m++) y[m][p] = add_minimum<sums>(minimum, tile.block(m, step), y[m][p]);
    }
}

// y += a step with scales of its own
template <Sums sums, int bits, int tokens, int panels>
[[gnu::always_inline]] inline void add_step_to(const TileOf<panels>& tile, const TileInput<sums, bits, tokens>&,
                                               int step, Floats (&y)[tokens][panels]) {
    constexpr int num_scales = scales_per_step(sums), num_minima = minima_per_step(sums);
    if constexpr (num_minima != 0) add_minima<sums, tokens, panels>(tile, step, y);
    StepSums<sums, tokens, panels> sum;
    multiply_step<sums, bits, tokens, panels>(tile, step, sum);
    for (int p = 0; p < panels; p++) {
        Floats scale[num_scales];
        for (int i = 0; i < num_scales; i++) scale[i] = tile.scale(p, step * num_scales + i);
        for (int m = 0; m < tokens; m++) {
            const ActivationBlock& x = tile.block(m, step);
            if constexpr (num_scales == 2)
                y[m][p] = add_halves(sum[m][p], scale, x, y[m][p]);
            else
                y[m][p] = add_step(sum[m][p][0], scale[0], x, y[m][p]);
        }
    }
}

// span += a step of span i, whose scale comes later
template <Sums sums, int bits, int tokens, int panels>
[[gnu::always_inline]] inline void add_step_to_span(const TileOf<panels>& tile, const TileInput<sums, bits, tokens>&,
                                                    int step, int i, Floats (&span)[tokens][panels]) {
    StepSums<sums, tokens, panels> sum;
    multiply_step<sums, bits, tokens, panels>(tile, step, sum);
    for (int m = 0; m < tokens; m++) {
        const ActivationBlock& x = tile.block(m, step);
        for (int p = 0; p < panels; p++) {
            span[m][p] = multiply_add(to_floats(sum[m][p][0]), splat(x.scale), span[m][p]);
            if constexpr (sums == Sums::span_zero) {
                const Floats zero[] = {tile.minimum(p, i)};
                span[m][p] = add_minimum<sums>(zero, x, span[m][p]);
            }
        }
    }
}
