// Many tokens with the unpacked stretches of one panel or two. Included after lanes.
//
// A tile of T tokens x 16 rows of P panels takes, a step, token and panel, 8 vpdpbusd and on the same two ports
//     step, span_zero 2 more (80 % of the vpdpbusd peak at best), step_minimum and half 3 (73 %),
//     step_half_minima 4 (67 %), span 1 and a bit (86 % at 4 steps a span)
// while conversions go to the others. A load brings 64 bytes, or a broadcast, a cycle: 8 P groups and 8 T times 4
// activations a step, which 8 T P vpdpbusd must cover. So 12 x 1 is bound by loads, and 6 x 2 has room for the scales:
// from the L1 the tiles come to within 0.5 to 0.8 of those 9.25 to 12 operations.

template <int panels>
struct TileOf {
    const Stretch* stretch;  // [panels]
    const std::byte* x;
    size_t token_bytes;
    float* y;                // [panels, panel_size]
    int64_t panel_size;
    int64_t fetched, fetch;  // bytes of what is unpacked next: before this tile's, and for each of its steps
    int row;                 // of a panel's 16, the first that the vectors have

    const ActivationBlock& block(int m, int step) const {
        return *reinterpret_cast<const ActivationBlock*>(x + m * token_bytes + step * sizeof(ActivationBlock));
    }
    float* outputs(int m, int p) const { return y + p * panel_size + m * panel_rows + row; }
    // Spread over all tiles and steps: more requests at once than the L1 keeps track of would hold up its own loads.
    // Always inlined: GCC takes a function that only prefetches for one without effect, and drops its calls.
    [[gnu::always_inline]] void fetch_next(int step) const {
        for (int p = 0; p < panels; p++) {
            const int64_t begin = fetched + step * fetch;
            const int64_t end = std::min(begin + fetch, stretch[p].next_bytes);
            for (int64_t i = begin; i < end; i += 64) __builtin_prefetch(stretch[p].next + i, 0, 2);
        }
    }
    Floats scale(int p, int i) const { return load(stretch[p].scale + i * panel_rows + row); }
    Floats minimum(int p, int i) const { return load(stretch[p].minimum + i * panel_rows + row); }
};

template <Sums sums, int tokens, int panels>
using StepSums = Ints[tokens][panels][scales_per_step(sums)];

template <Sums sums, int tokens, int panels>
inline void multiply_step(const TileOf<panels>& tile, int step, StepSums<sums, tokens, panels>& sum) {
    constexpr int num_dots = scales_per_step(sums), groups = step_groups / num_dots;
    const int64_t first = step * int64_t{step_groups * group_bytes} + tile.row * 4;
    tile.fetch_next(step);
    for (int m = 0; m < tokens; m++)
        for (int p = 0; p < panels; p++)
            for (int h = 0; h < num_dots; h++)
                sum[m][p][h] = bias<unpacked_lift(sums)>(num_dots == 2 ? tile.block(m, step).offset_half[h]
                                                                       : tile.block(m, step).offset);
#pragma GCC unroll 8
    for (int g = 0; g < step_groups; g++) {
        Bytes codes[panels];
        for (int p = 0; p < panels; p++) codes[p] = load_codes(tile.stretch[p].codes + first + g * group_bytes);
#pragma GCC unroll 16
        for (int m = 0; m < tokens; m++) {
            const int32_t four = four_codes(tile.block(m, step), g);
            for (int p = 0; p < panels; p++)
                sum[m][p][g / groups] = dot<unpacked_lift(sums)>(sum[m][p][g / groups], codes[p], four);
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

template <Sums sums, int tokens, int panels>
void multiply_steps(const TileOf<panels>& tile) {
    constexpr int num_scales = scales_per_step(sums), num_minima = minima_per_step(sums);
    Floats y[tokens][panels];
    for (int m = 0; m < tokens; m++)
        for (int p = 0; p < panels; p++) y[m][p] = load(tile.outputs(m, p));
    for (int step = 0; step < tile.stretch->num_steps; step++) {
        if constexpr (num_minima != 0) add_minima<sums, tokens, panels>(tile, step, y);
        StepSums<sums, tokens, panels> sum;
        multiply_step<sums, tokens, panels>(tile, step, sum);
        for (int p = 0; p < panels; p++) {
            Floats scale[num_scales];
            for (int i = 0; i < num_scales; i++) scale[i] = tile.scale(p, step * num_scales + i);
            for (int m = 0; m < tokens; m++) {
                const ActivationBlock& x = tile.block(m, step);
                if constexpr (num_scales == 2) y[m][p] = add_halves(sum[m][p], scale, x, y[m][p]);
                else y[m][p] = add_step(sum[m][p][0], scale[0], x, y[m][p]);
            }
        }
    }
    for (int m = 0; m < tokens; m++)
        for (int p = 0; p < panels; p++) store(tile.outputs(m, p), y[m][p]);
}

// The outputs wait in memory while a span's steps are summed in registers.
template <Sums sums, int tokens, int panels>
void multiply_spans(const TileOf<panels>& tile) {
    const int num_steps = tile.stretch->num_steps, length = tile.stretch->span;
    for (int begin = 0, i = 0; begin < num_steps; begin += length, i++) {
        const int end = std::min(begin + length, num_steps);
        Floats span[tokens][panels];
        for (auto& token : span)
            for (auto& value : token) value = splat(0.0f);
        for (int step = begin; step < end; step++) {
            StepSums<sums, tokens, panels> sum;
            multiply_step<sums, tokens, panels>(tile, step, sum);
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
        for (int p = 0; p < panels; p++) {
            const Floats scale = tile.scale(p, i);
            for (int m = 0; m < tokens; m++)
                store(tile.outputs(m, p), multiply_add(span[m][p], scale, load(tile.outputs(m, p))));
        }
    }
}

template <Sums sums, int tokens, int panels>
void multiply_tile(TileOf<panels> tile) {
    for (tile.row = 0; tile.row < panel_rows; tile.row += width) {
        if constexpr (is_span(sums)) multiply_spans<sums, tokens>(tile);
        else multiply_steps<sums, tokens>(tile);
    }
}

// [tokens - 1]
template <Sums sums, int panels, int... tokens>
constexpr std::array<void (*)(TileOf<panels>), sizeof...(tokens)> tiles_of(std::integer_sequence<int, tokens...>) {
    return {multiply_tile<sums, tokens + 1, panels>...};
}

template <Sums sums, int panels>
void multiply_panels(const Stretch* stretch, const std::byte* x, size_t token_bytes, int64_t num_tokens, float* y) {
    constexpr int most = tile_tokens(sums, panels);
    static constexpr auto tiles = tiles_of<sums, panels>(std::make_integer_sequence<int, most>{});
    // As few tiles as there must be, of nearly equal height: a low one does not hide vpdpbusd's latency.
    const int64_t num_tiles = (num_tokens + most - 1) / most;
    const int64_t num_lines = (stretch->next_bytes + 63) / 64, num_steps = num_tiles * stretch->num_steps;
    const int64_t fetch = (num_lines + num_steps - 1) / std::max<int64_t>(1, num_steps) * 64;
    const int64_t low = num_tokens / num_tiles, num_higher = num_tokens % num_tiles;
    for (int64_t i = 0, begin = 0; i < num_tiles; i++) {
        const int64_t tokens = low + (i < num_higher);
        tiles[tokens - 1]({stretch, x + begin * token_bytes, token_bytes, y + begin * panel_rows,
                           num_tokens * panel_rows, i * stretch->num_steps * fetch, fetch, 0});
        begin += tokens;
    }
}

template <Sums sums>
Isa tile(std::span<const Stretch> stretches, const std::byte* x, size_t token_bytes, int64_t num_tokens, float* y) {
    static_assert(tile_panels == 2);
    if (stretches.size() == 2) multiply_panels<sums, 2>(stretches.data(), x, token_bytes, num_tokens, y);
    else multiply_panels<sums, 1>(stretches.data(), x, token_bytes, num_tokens, y);
    return this_isa;
}
