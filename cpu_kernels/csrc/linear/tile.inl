// Many tokens with the unpacked stretches of one panel or two. Included after lanes.
//
// A tile of T tokens x 16 rows of P panels takes, a step, token and panel, 8 vpdpbusd and on the same two ports
//     step, span_zero 2 more (80 % of the vpdpbusd peak at best), step_minimum and half 3 (73 %),
//     step_half_minima 4 (67 %), span 1 and a bit (86 % at 4 steps a span)
// while conversions go to the others. A load brings 64 bytes, or a broadcast, a cycle: 8 P groups and 8 T times 4
// activations a step, which 8 T P vpdpbusd must cover. So 12 x 1 is bound by loads, and 6 x 2 has room for the scales:
// from the L1 the tiles come to within 0.5 to 0.8 of those 9.25 to 12 operations.

// What is unpacked next, brought to the L2 meanwhile: some lines a step, of the panels in turn. More requests at once
// than the L1 keeps track of would hold up the tile's own loads.
template <int panels>
struct Fetch {
    const uint8_t *next[panels], *end[panels];
    int lines;  // a turn
    unsigned turn = 0;

    Fetch(const Stretch* stretch, int64_t num_turns) {
        for (int p = 0; p < panels; p++) {
            next[p] = stretch[p].next;
            end[p] = next[p] + stretch[p].next_bytes;
        }
        const int64_t own_turns = std::max<int64_t>(1, num_turns / panels),
                      most_lines = (stretch->next_bytes + 63) / 64;
        lines = static_cast<int>((most_lines + own_turns - 1) / own_turns);
    }
    // Always inlined: GCC takes a function that only prefetches for one without effect, and drops its calls.
    [[gnu::always_inline]] void operator()() {
        const unsigned p = turn++ % panels;
        for (int i = 0; i < lines && next[p] < end[p]; i++, next[p] += 64) __builtin_prefetch(next[p], 0, 2);
    }
};

template <int panels>
struct TileOf {
    const Stretch* stretch;  // [panels]
    const std::byte* x;
    size_t token_bytes;
    float* sums;             // [panels, panel_size], where the outputs are before
    int64_t panel_size;
    float* to;               // and after: sums or y
    int64_t to_token, to_panel;  // from one to the next there
    int row;                 // of a panel's 16, the first that the vectors have

    const ActivationBlock& block(int m, int step) const {
        return *reinterpret_cast<const ActivationBlock*>(x + m * token_bytes + step * sizeof(ActivationBlock));
    }
    float* before(int m, int p) const { return sums + p * panel_size + m * panel_rows + row; }
    float* after(int m, int p) const { return to + p * to_panel + m * to_token + row; }
    // Its outputs remain where they are.
    void stay() { to = sums, to_token = panel_rows, to_panel = panel_size; }
    void skip(int64_t num_tokens) {
        x += num_tokens * token_bytes;
        sums += num_tokens * panel_rows;
        to += num_tokens * to_token;
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

// Inlined, as is the next, so that the tile's members are in registers: read from memory in words of another size than
// they were written in, they would wait until every store before them, of outputs that miss the caches, is done.
template <Sums sums, int tokens, int panels>
[[gnu::always_inline]] inline void multiply_steps(const TileOf<panels>& tile, Fetch<panels>& fetch) {
    constexpr int num_scales = scales_per_step(sums), num_minima = minima_per_step(sums);
    const int num_steps = tile.stretch->num_steps;
    Floats y[tokens][panels];
    for (int m = 0; m < tokens; m++)
        for (int p = 0; p < panels; p++) y[m][p] = load(tile.before(m, p));
    int step = 0;
    do {  // one at least: else the outputs would have a place in memory for the case that there is none
        fetch();
        if constexpr (num_minima != 0) add_minima<sums, tokens, panels>(tile, step, y);
        StepSums<sums, tokens, panels> sum;
        multiply_step<sums, tokens, panels>(tile, step, sum);
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
    } while (++step < num_steps);
    for (int m = 0; m < tokens; m++)
        for (int p = 0; p < panels; p++) store(tile.after(m, p), y[m][p]);
}

// The outputs wait in memory while a span's steps are summed in registers.
template <Sums sums, int tokens, int panels>
[[gnu::always_inline]] inline void multiply_spans(const TileOf<panels>& tile, Fetch<panels>& fetch) {
    const int num_steps = tile.stretch->num_steps, length = tile.stretch->span;
    for (int begin = 0, i = 0; begin < num_steps; begin += length, i++) {
        const int end = std::min(begin + length, num_steps);
        Floats span[tokens][panels];
        for (auto& token : span)
            for (auto& value : token) value = splat(0.0f);
        int step = begin;
        do {
            fetch();
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
        } while (++step < end);
        TileOf<panels> place = tile;
        if (end < num_steps) place.stay();
        for (int p = 0; p < panels; p++) {
            const Floats scale = tile.scale(p, i);
            for (int m = 0; m < tokens; m++)
                store(place.after(m, p), multiply_add(span[m][p], scale, load(tile.before(m, p))));
        }
    }
}

// Some tiles of equal height, the first of them at `tile`.
template <Sums sums, int tokens, int panels>
void multiply_tiles(TileOf<panels> tile, int64_t num_tiles, Fetch<panels>& fetch) {
    for (int64_t i = 0; i < num_tiles; i++) {
        for (tile.row = 0; tile.row < panel_rows; tile.row += width) {
            if constexpr (is_span(sums))
                multiply_spans<sums, tokens>(tile, fetch);
            else
                multiply_steps<sums, tokens>(tile, fetch);
        }
        tile.skip(tokens);
    }
}

// [tokens - 1]
template <Sums sums, int panels, int... tokens>
constexpr std::array<void (*)(TileOf<panels>, int64_t, Fetch<panels>&), sizeof...(tokens)> tiles_of(
    std::integer_sequence<int, tokens...>) {
    return {multiply_tiles<sums, tokens + 1, panels>...};
}

template <Sums sums, int panels>
void multiply_panels(const Stretch* stretch, const std::byte* x, size_t token_bytes, int64_t num_tokens,
                     const Outputs& out) {
    constexpr int most = tile_tokens(sums, panels);
    static constexpr auto tiles = tiles_of<sums, panels>(std::make_integer_sequence<int, most>{});
    // As few tiles as there must be, of nearly equal height: a low one does not hide vpdpbusd's latency.
    const int64_t num_tiles = (num_tokens + most - 1) / most;
    const int64_t low = num_tokens / num_tiles, num_higher = num_tokens % num_tiles;
    Fetch<panels> fetch(stretch, num_tiles * stretch->num_steps);
    const int64_t panel_size = num_tokens * panel_rows;
    TileOf<panels> tile{stretch, x, token_bytes, out.sums, panel_size, out.y, out.y_stride, panel_rows, 0};
    if (!out.y) tile.stay();
    if (num_higher) tiles[low](tile, num_higher, fetch);
    tile.skip(num_higher * (low + 1));
    tiles[low - 1](tile, num_tiles - num_higher, fetch);
}

template <Sums sums>
Isa tile(std::span<const Stretch> stretches, const std::byte* x, size_t token_bytes, int64_t num_tokens,
         const Outputs& out) {
    static_assert(tile_panels == 2);
    if (stretches.size() == 2)
        multiply_panels<sums, 2>(stretches.data(), x, token_bytes, num_tokens, out);
    else
        multiply_panels<sums, 1>(stretches.data(), x, token_bytes, num_tokens, out);
    return this_isa;
}
