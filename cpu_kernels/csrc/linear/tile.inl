// Many tokens with an unpacked stretch. Included after lanes.
//
// A tile of T tokens x 16 rows takes, a step and token, 8 vpdpbusd and on the same two ports
//     step, span_zero 2 more (80 % of the vpdpbusd peak at best), step_minimum and half 3 (73 %),
//     step_half_minima 4 (67 %), span 1 and a bit (86 % at 4 steps a span)
// while conversions go to the other ports; it loads 8 groups and, folded into vpdpbusd, 8 T times 4 activations.

// One accumulator a token and dot, `tile_tokens` of them so that 4 cycles of latency are hidden three times over.
template <Sums sums, int tokens>
inline void tile_step(const uint8_t* codes, const std::byte* x, size_t token_bytes, Ints (*sum)[scales_per_step(sums)]) {
    constexpr int num_dots = scales_per_step(sums), groups = step_groups / num_dots;
    const auto block = [&](int m) -> const ActivationBlock& {
        return *reinterpret_cast<const ActivationBlock*>(x + m * token_bytes);
    };
    for (int m = 0; m < tokens; m++)
        for (int h = 0; h < num_dots; h++)
            sum[m][h] = !is_biased(sums)  ? zero_ints()
                        : num_dots == 2 ? bias(block(m).offset_half[h])
                                        : bias(block(m).offset);
#pragma GCC unroll 8
    for (int g = 0; g < step_groups; g++) {
        const Bytes w = load_codes(codes + g * group_bytes);
#pragma GCC unroll 16
        for (int m = 0; m < tokens; m++)
            sum[m][g / groups] = dot<is_biased(sums)>(sum[m][g / groups], w, four_codes(block(m), g));
    }
}

// The part of the next stretch's packed bytes that falls to step `s`: spread over a tile, as more requests at once than
// the L1 keeps track of would hold up its own loads.
inline void fetch_next(const Stretch& stretch, int s) {
    const int begin = stretch.next_bytes * s / stretch.num_steps, end = stretch.next_bytes * (s + 1) / stretch.num_steps;
    for (int i = begin; i < end; i += 64) __builtin_prefetch(stretch.next + i, 0, 2);
}

template <Sums sums, int tokens>
void multiply_tile(const Stretch& stretch, const std::byte* x, size_t token_bytes, int row, float* out) {
    constexpr int num_scales = scales_per_step(sums), num_minima = minima_per_step(sums);
    const uint8_t* codes = stretch.codes + row * 4;
    const float* scale = stretch.scale + row;
    const float* minimum = stretch.minimum + row;
    Floats y[tokens];
    for (int m = 0; m < tokens; m++) y[m] = load(out + m * panel_rows + row);
    for (int s = 0; s < stretch.num_steps; s++) {
        fetch_next(stretch, s);
        Ints sum[tokens][num_scales];
        tile_step<sums, tokens>(codes, x, token_bytes, sum);
        Floats scales[num_scales], minima[num_minima + 1];
        for (int i = 0; i < num_scales; i++) scales[i] = load(scale + i * panel_rows);
        for (int i = 0; i < num_minima; i++) minima[i] = load(minimum + i * panel_rows);
        for (int m = 0; m < tokens; m++) {
            const auto& x_block = *reinterpret_cast<const ActivationBlock*>(x + m * token_bytes);
            if constexpr (num_scales == 2) y[m] = add_halves(sum[m], scales, x_block, y[m]);
            else y[m] = add_step(sum[m][0], scales[0], x_block, y[m]);
            if constexpr (num_minima != 0) y[m] = add_minimum<sums>(minima, x_block, y[m]);
        }
        codes += step_groups * group_bytes;
        scale += num_scales * panel_rows;
        minimum += num_minima * panel_rows;
        x += sizeof(ActivationBlock);
    }
    for (int m = 0; m < tokens; m++) store(out + m * panel_rows + row, y[m]);
}

// The outputs wait in memory while a span's steps are summed in registers.
template <Sums sums, int tokens>
void multiply_tile_of_spans(const Stretch& stretch, const std::byte* x, size_t token_bytes, int row, float* out) {
    const uint8_t* codes = stretch.codes + row * 4;
    const float* scale = stretch.scale + row;
    const float* zero = stretch.minimum + row;
    for (int begin = 0; begin < stretch.num_steps; begin += stretch.span) {
        const int steps = std::min(stretch.span, stretch.num_steps - begin);
        Floats span[tokens];
        for (auto& value : span) value = splat(0.0f);
        for (int s = 0; s < steps; s++) {
            fetch_next(stretch, begin + s);
            Ints sum[tokens][1];
            tile_step<sums, tokens>(codes, x, token_bytes, sum);
            for (int m = 0; m < tokens; m++) {
                const auto& x_block = *reinterpret_cast<const ActivationBlock*>(x + m * token_bytes);
                span[m] = multiply_add(to_floats(sum[m][0]), splat(x_block.scale), span[m]);
                if constexpr (sums == Sums::span_zero) {
                    const Floats zeros[] = {load(zero)};
                    span[m] = add_minimum<sums>(zeros, x_block, span[m]);
                }
            }
            codes += step_groups * group_bytes;
            x += sizeof(ActivationBlock);
        }
        const Floats scales = load(scale);
        for (int m = 0; m < tokens; m++) {
            float* y = out + m * panel_rows + row;
            store(y, multiply_add(span[m], scales, load(y)));
        }
        scale += panel_rows;
        if constexpr (sums == Sums::span_zero) zero += panel_rows;
    }
}

template <Sums sums, int tokens>
void multiply_rows(const Stretch& stretch, const std::byte* x, size_t token_bytes, float* y) {
    for (int row = 0; row < panel_rows; row += width) {
        if constexpr (is_span(sums)) multiply_tile_of_spans<sums, tokens>(stretch, x, token_bytes, row, y);
        else multiply_tile<sums, tokens>(stretch, x, token_bytes, row, y);
    }
}

using TileOf = void (*)(const Stretch&, const std::byte* x, size_t token_bytes, float* y);

template <Sums sums, int... tokens>
constexpr std::array<TileOf, sizeof...(tokens)> tiles_of(std::integer_sequence<int, tokens...>) {
    return {multiply_rows<sums, tokens + 1>...};
}

template <Sums sums>
Isa tile(const Stretch& stretch, const std::byte* x, size_t token_bytes, int64_t num_tokens, float* y) {
    constexpr int most = tile_tokens(sums);
    static constexpr auto tiles = tiles_of<sums>(std::make_integer_sequence<int, most>{});
    // As few tiles as there must be, of nearly equal height: a low one does not hide vpdpbusd's latency.
    const int64_t num_tiles = (num_tokens + most - 1) / most;
    Stretch rest = stretch;  // the first tile fetches what comes next
    rest.next_bytes = 0;
    for (int64_t i = 0; i < num_tiles; i++) {
        const int64_t begin = num_tokens * i / num_tiles, end = num_tokens * (i + 1) / num_tiles;
        tiles[end - begin - 1](i ? rest : stretch, x + begin * token_bytes, token_bytes, y + begin * panel_rows);
    }
    return this_isa;
}
