// Many tokens with an unpacked stretch, by tile instructions. Included after lanes.
//
// An unpacked step is a tile as it stands, 8 rows of 16 columns x 4 bytes, and the codes of 16 tokens' activation
// blocks are the other, 16 rows of 32 bytes: nothing is rearranged for either. A product is 16 tokens x 16 rows x 32 k.
//
// The tile unit takes 16 cycles for it; then each of the 16 x 16 sums is scaled by vector instructions, a token's 16
// outputs at a time: to float, a multiply and an FMA on two ports, the bias and the conversion, 40 cycles for 16
// tokens. So block formats are bound by their scales here: at best 16 x 16 x 32 / 40 = 205 multiply-adds a cycle, where
// vpdpbusd with the same scales has 2 x 64 x 0.8 = 102 on such a core.

constexpr int tile_rows = 16;  // tokens
constexpr int num_sum_tiles = 4;  // tiles of sums: products of 52 cycles' latency, begun every 16

// Tiles 0 to 3 are sums, 4 and 5 activations, 6 and 7 codes.
template <int dot_size>
TileConfig config_of(int64_t num_tokens) {
    TileConfig config;
    for (int i = 0; i < num_sum_tiles; i++) config.set(i, num_tokens, panel_rows * 4);
    for (int i = 0; i < 2; i++) {
        config.set(4 + i, num_tokens, dot_size);
        config.set(6 + i, dot_size / 4, group_bytes);
    }
    return config;
}

using TileSums = int32_t[num_sum_tiles][tile_rows][panel_rows];

// `dot_size` k of all tokens. x: the tokens' codes of these k
template <int i, int dot_size>
inline void begin_dot(const uint8_t* codes, const int8_t* x, size_t token_bytes) {
    constexpr int x_tile = 4 + i % 2, codes_tile = 6 + i % 2;
    tile_zero<i>();
    tile_load<x_tile>(x, static_cast<int64_t>(token_bytes));
    tile_load<codes_tile>(codes, group_bytes);
    tile_dot_int8_uint8<i, x_tile, codes_tile>();
}

template <int i>
inline void end_dot(TileSums& sums) {
    tile_store<i>(sums[i], sizeof sums[i][0]);
}

// num_dots <= num_sum_tiles dots, one after the other along k. The last is begun before the first is waited for.
template <int dot_size>
inline void multiply_dots(int num_dots, const uint8_t* codes, const std::byte* x, size_t token_bytes, TileSums& sums) {
    constexpr int per_step = step_size / dot_size;
    const auto x_of = [&](int i) {
        return reinterpret_cast<const ActivationBlock*>(x)[i / per_step].codes + i % per_step * dot_size;
    };
    constexpr int codes_bytes = dot_size * panel_rows;
    begin_dot<0, dot_size>(codes, x_of(0), token_bytes);
    if (num_dots > 1) begin_dot<1, dot_size>(codes + codes_bytes, x_of(1), token_bytes);
    if (num_dots > 2) begin_dot<2, dot_size>(codes + 2 * codes_bytes, x_of(2), token_bytes);
    if (num_dots > 3) begin_dot<3, dot_size>(codes + 3 * codes_bytes, x_of(3), token_bytes);
    end_dot<0>(sums);
    if (num_dots > 1) end_dot<1>(sums);
    if (num_dots > 2) end_dot<2>(sums);
    if (num_dots > 3) end_dot<3>(sums);
}

template <Sums sums>
inline Ints sum_of(const int32_t* tile_row, int32_t offset) {
    return is_biased(sums) ? load_ints(tile_row) + offset : load_ints(tile_row);
}

// y [num_tokens, 16] += the dots of some steps, scaled.
template <Sums sums>
inline void add_steps(int num_steps, const TileSums& dots, const float* scale, const float* minimum, const std::byte* x,
                      size_t token_bytes, int64_t num_tokens, float* out) {
    constexpr int num_scales = scales_per_step(sums), num_minima = minima_per_step(sums);
    for (int64_t m = 0; m < num_tokens; m++, x += token_bytes, out += panel_rows) {
        const auto* x_block = reinterpret_cast<const ActivationBlock*>(x);
        Floats y = load(out);
        for (int s = 0; s < num_steps; s++, x_block++) {
            const float* step_scale = scale + s * num_scales * panel_rows;
            if constexpr (num_minima != 0) {
                Floats minima[num_minima];
                for (int i = 0; i < num_minima; i++) minima[i] = load(minimum + (s * num_minima + i) * panel_rows);
                y = add_minimum<sums>(minima, *x_block, y);
            }
            if constexpr (num_scales == 2) {
                const Ints halves[] = {sum_of<sums>(dots[2 * s][m], x_block->offset_half[0]),
                                       sum_of<sums>(dots[2 * s + 1][m], x_block->offset_half[1])};
                const Floats scales[] = {load(step_scale), load(step_scale + panel_rows)};
                y = add_halves(halves, scales, *x_block, y);
            } else {
                y = add_step(sum_of<sums>(dots[s][m], x_block->offset), load(step_scale), *x_block, y);
            }
        }
        store(out, y);
    }
}

template <Sums sums>
void multiply_tile(const Stretch& stretch, const std::byte* x, size_t token_bytes, int64_t num_tokens, float* y) {
    constexpr int num_scales = scales_per_step(sums), num_minima = minima_per_step(sums);
    constexpr int most_steps = num_sum_tiles / num_scales;
    alignas(64) TileSums dots;
    for (int s = 0; s < stretch.num_steps; s += most_steps) {
        const int steps = std::min(most_steps, stretch.num_steps - s);
        const std::byte* x_step = x + s * sizeof(ActivationBlock);
        multiply_dots<step_size / num_scales>(steps * num_scales, stretch.codes + s * step_groups * group_bytes, x_step,
                                              token_bytes, dots);
        add_steps<sums>(steps, dots, stretch.scale + s * num_scales * panel_rows,
                        stretch.minimum + s * num_minima * panel_rows, x_step, token_bytes, num_tokens, y);
    }
}

// span [num_tokens, 16] += the dots of some steps under one scale of the weight, which comes later.
template <Sums sums>
inline void add_to_span(int num_steps, const TileSums& dots, Floats zero, const std::byte* x, size_t token_bytes,
                        int64_t num_tokens, Floats* span) {
    for (int64_t m = 0; m < num_tokens; m++, x += token_bytes) {
        const auto* x_block = reinterpret_cast<const ActivationBlock*>(x);
        for (int s = 0; s < num_steps; s++, x_block++) {
            const Ints sum = sum_of<sums>(dots[s][m], x_block->offset);
            span[m] = multiply_add(to_floats(sum), splat(x_block->scale), span[m]);
            if constexpr (sums == Sums::span_zero) span[m] = add_minimum<sums>(&zero, *x_block, span[m]);
        }
    }
}

template <Sums sums>
void multiply_tile_of_spans(const Stretch& stretch, const std::byte* x, size_t token_bytes, int64_t num_tokens,
                            float* y) {
    alignas(64) TileSums dots;
    const float *scale = stretch.scale, *zero = stretch.minimum;
    for (int begin = 0; begin < stretch.num_steps; begin += stretch.span, scale += panel_rows) {
        const int end = std::min(begin + stretch.span, stretch.num_steps);
        Floats span[tile_rows];
        for (auto& value : span) value = splat(0.0f);
        Floats zeros = splat(0.0f);
        if constexpr (sums == Sums::span_zero) {
            zeros = load(zero);
            zero += panel_rows;
        }
        for (int s = begin; s < end; s += num_sum_tiles) {
            const int steps = std::min(num_sum_tiles, end - s);
            const std::byte* x_step = x + s * sizeof(ActivationBlock);
            multiply_dots<step_size>(steps, stretch.codes + s * step_groups * group_bytes, x_step, token_bytes, dots);
            add_to_span<sums>(steps, dots, zeros, x_step, token_bytes, num_tokens, span);
        }
        for (int64_t m = 0; m < num_tokens; m++)
            store(y + m * panel_rows, multiply_add(span[m], load(scale), load(y + m * panel_rows)));
    }
}

// Tokens whose tiles have this many rows.
template <Sums sums>
void multiply_tokens(const Stretch& stretch, const std::byte* x, size_t token_bytes, int64_t num_tokens, int64_t rows,
                     float* y) {
    const Tiles tiles(config_of<step_size / scales_per_step(sums)>(rows));
    for (int64_t i = 0; i < num_tokens; i += rows, x += rows * token_bytes, y += rows * panel_rows) {
        if constexpr (is_span(sums))
            multiply_tile_of_spans<sums>(stretch, x, token_bytes, rows, y);
        else
            multiply_tile<sums>(stretch, x, token_bytes, rows, y);
    }
}

template <Sums sums, int>
Isa tile(std::span<const Stretch> stretches, const std::byte* x, size_t token_bytes, int64_t num_tokens,
         const Outputs& out) {
    const int64_t whole = num_tokens / tile_rows * tile_rows, rest = num_tokens - whole;
    float *y = out.sums, *to = out.y;
    for (const Stretch& stretch : stretches) {
        if (whole) multiply_tokens<sums>(stretch, x, token_bytes, whole, tile_rows, y);
        if (rest)
            multiply_tokens<sums>(stretch, x + whole * token_bytes, token_bytes, rest, rest, y + whole * panel_rows);
        for (int64_t m = 0; to && m < num_tokens; m++) store(to + m * out.y_stride, load(y + m * panel_rows));
        y += num_tokens * panel_rows;
        if (to) to += panel_rows;
    }
    return this_isa;
}
