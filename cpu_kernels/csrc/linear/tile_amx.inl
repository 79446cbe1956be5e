// Many tokens with an unpacked stretch, by tile instructions. Included after lanes.
//
// An unpacked step is a tile as unpacked, 8 rows of 16 columns x 4 bytes, and the codes of 16 tokens' activation
// blocks are the other, 16 rows of 32 bytes: nothing is rearranged for either. A product is 16 tokens x 16 rows x 32 k.
//
// Each of its 16 x 16 sums is scaled by vector instructions: a conversion, a multiply and an FMA for each token on two
// ports, 24 cycles, where the tile unit takes 16. So the tile unit has to run ahead: the dots of the next steps are under
// way while one step is scaled, and the outputs of 16 tokens stay in registers. Sums reach vector registers through
// memory alone. In a loop of their own the store of a tile takes 16 cycles, its scaling 21, and both together 52: that
// bounds the tile at 16 x 16 x 32 / 52 = 158 multiply-adds per cycle, of the 1024 that the unit can do.

constexpr int tile_rows = 16;  // tokens
constexpr int num_sum_tiles = 4;

// How the dots of steps use the tiles of sums in turn.
template <Sums sums>
struct Turns {
    static constexpr int dots = scales_per_step(sums);  // of a step
    static constexpr int dot_size = step_size / dots;
    static constexpr int count = num_sum_tiles / dots;  // steps that have tiles of their own
    static constexpr int ahead = dots == 1 ? 3 : 2;  // steps from the one that is scaled to the one that is begun
};

// Tiles 0 to 3 are sums, 4 and 5 activations, 6 and 7 codes.
template <int dot_size>
TileConfig tile_config() {
    TileConfig config;
    for (int i = 0; i < num_sum_tiles; i++) config.set(i, tile_rows, panel_rows * 4);
    for (int i = 0; i < 2; i++) {
        config.set(4 + i, tile_rows, dot_size);
        config.set(6 + i, dot_size / 4, group_bytes);
    }
    return config;
}

using TileSums = int32_t[tile_rows][panel_rows];

// 16 tokens and a panel, from its first step on.
struct TilePlace {
    const Stretch* stretch;
    const std::byte* x;
    size_t token_bytes;
    const float* before;  // [16 tokens, 16]
    float* after;  // [16 tokens, after_token]
    int64_t after_token;

    const ActivationBlock& block(int m, int step) const {
        return *reinterpret_cast<const ActivationBlock*>(x + m * token_bytes + step * sizeof(ActivationBlock));
    }
};

template <Sums sums, int turn>
[[gnu::always_inline]] inline void begin_dots(const TilePlace& place, int step) {
    using Of = Turns<sums>;
    constexpr int sum = turn * Of::dots, odd = Of::dots == 1 ? turn % 2 : 0, x_tile = 4 + odd, codes_tile = 6 + odd;
    const std::byte* x = place.x + step * sizeof(ActivationBlock);
    const uint8_t* codes = place.stretch->codes + step * step_groups * group_bytes;
    const auto token_bytes = static_cast<int64_t>(place.token_bytes);
    tile_zero<sum>();
    tile_load<x_tile>(x, token_bytes);
    tile_load<codes_tile>(codes, group_bytes);
    tile_dot_int8<sum, x_tile, codes_tile>();
    if constexpr (Of::dots == 2) {
        tile_zero<sum + 1>();
        tile_load<x_tile + 1>(x + Of::dot_size, token_bytes);
        tile_load<codes_tile + 1>(codes + Of::dot_size * panel_rows, group_bytes);
        tile_dot_int8<sum + 1, x_tile + 1, codes_tile + 1>();
    }
}

template <Sums sums, int turn>
[[gnu::always_inline]] inline void end_dots(TileSums* dots) {
    constexpr int sum = turn * Turns<sums>::dots;
    tile_store<sum>(dots[0], sizeof dots[0][0]);
    if constexpr (Turns<sums>::dots == 2) tile_store<sum + 1>(dots[1], sizeof dots[1][0]);
}

// y += a step of 16 tokens with scales of its own
template <Sums sums>
[[gnu::always_inline]] inline void scale_step(const TilePlace& place, int step, const TileSums* dots,
                                              Floats (&y)[tile_rows]) {
    constexpr int num_scales = scales_per_step(sums), num_minima = minima_per_step(sums);
    Floats scale[num_scales];
    for (int i = 0; i < num_scales; i++) scale[i] = load(place.stretch->scale + (step * num_scales + i) * panel_rows);
    [[maybe_unused]] Floats minimum[num_minima + 1];
    for (int i = 0; i < num_minima; i++)
        minimum[i] = load(place.stretch->minimum + (step * num_minima + i) * panel_rows);
#pragma GCC unroll 16
    for (int m = 0; m < tile_rows; m++) {
        const ActivationBlock& x = place.block(m, step);
        if constexpr (num_minima != 0) y[m] = add_minimum<sums>(minimum, x, y[m]);
        if constexpr (num_scales == 2) {
            const Ints both[] = {load_ints(dots[0][m]), load_ints(dots[1][m])};
            y[m] = add_halves(both, scale, x, y[m]);
        } else {
            y[m] = add_step(load_ints(dots[0][m]), scale[0], x, y[m]);
        }
    }
}

// span += a step of 16 tokens whose scale comes later
template <Sums sums>
[[gnu::always_inline]] inline void add_to_span(const TilePlace& place, int step, int i, const TileSums* dots,
                                               Floats (&span)[tile_rows]) {
    [[maybe_unused]] Floats zero;
    if constexpr (sums == Sums::span_zero) zero = load(place.stretch->minimum + i * panel_rows);
#pragma GCC unroll 16
    for (int m = 0; m < tile_rows; m++) {
        const ActivationBlock& x = place.block(m, step);
        span[m] = multiply_add(to_floats(load_ints(dots[0][m])), splat(x.scale), span[m]);
        if constexpr (sums == Sums::span_zero) span[m] = add_minimum<sums>(&zero, x, span[m]);
    }
}

// The outputs of 16 tokens; of spans, the sums of the span that has been begun.
template <Sums sums>
struct Accumulators {
    const TilePlace& place;
    Floats value[tile_rows];
    const float* from;  // of spans: where the outputs are
    int span = 0;

    [[gnu::always_inline]] explicit Accumulators(const TilePlace& of) : place(of), from(of.before) {
#pragma GCC unroll 16
        for (int m = 0; m < tile_rows; m++) value[m] = is_span(sums) ? splat(0.0f) : load(of.before + m * panel_rows);
    }

    [[gnu::always_inline]] void add(int step, const TileSums* dots) {
        if constexpr (is_span(sums)) {
            add_to_span<sums>(place, step, span, dots, value);
            if ((step + 1) % place.stretch->span == 0 || step + 1 == place.stretch->num_steps) end_span();
        } else {
            scale_step<sums>(place, step, dots, value);
        }
    }

    [[gnu::always_inline]] void end_span() {
        const Floats scale = load(place.stretch->scale + span * panel_rows);
        const int64_t from_token = span == 0 ? panel_rows : place.after_token;
#pragma GCC unroll 16
        for (int m = 0; m < tile_rows; m++) {
            store(place.after + m * place.after_token, multiply_add(value[m], scale, load_any(from + m * from_token)));
            value[m] = splat(0.0f);
        }
        from = place.after;
        span++;
    }

    [[gnu::always_inline]] void finish() {
        if constexpr (!is_span(sums)) {
#pragma GCC unroll 16
            for (int m = 0; m < tile_rows; m++) store(place.after + m * place.after_token, value[m]);
        }
    }
};

template <Sums sums>
void multiply_tile(const TilePlace& place) {
    using Of = Turns<sums>;
    alignas(64) TileSums dots[2][Of::dots];  // of the step that is scaled, and of the next
    const int num_steps = place.stretch->num_steps;
    const auto begin = [&]<int turn>(int step) __attribute__((always_inline)) {
        if (step < num_steps) begin_dots<sums, turn % Of::count>(place, step);
    };
    const auto end = [&]<int turn>(int step) __attribute__((always_inline)) {
        if (step < num_steps) end_dots<sums, turn % Of::count>(dots[turn % 2]);
    };
    Accumulators<sums> y(place);
    const auto turn = [&]<int i>(int step) __attribute__((always_inline)) {
        if (step >= num_steps) return;
        end.template operator()<i + 1>(step + 1);
        begin.template operator()<i + Of::ahead>(step + Of::ahead);
        y.add(step, dots[i % 2]);
    };
    begin.template operator()<0>(0);
    begin.template operator()<1>(1);
    if constexpr (Of::ahead == 3) begin.template operator()<2>(2);
    end.template operator()<0>(0);
    for (int step = 0; step < num_steps; step += Of::count) {
        turn.template operator()<0>(step);
        turn.template operator()<1>(step + 1);
        if constexpr (Of::count == 4) {
            turn.template operator()<2>(step + 2);
            turn.template operator()<3>(step + 3);
        }
    }
    y.finish();
}

// Fewer than 16 tokens: a copy of them, filled up with zeros.
template <Sums sums>
void multiply_rest(const Stretch& stretch, const std::byte* x, size_t token_bytes, int64_t num_tokens, float* before,
                   float* after, int64_t after_token) {
    alignas(64) ActivationBlock blocks[tile_rows][stretch_steps + 1];
    alignas(64) float sums_before[tile_rows][panel_rows] = {}, sums_after[tile_rows][panel_rows];
    for (int64_t m = 0; m < num_tokens; m++) {
        std::memcpy(blocks[m], x + m * token_bytes, stretch.num_steps * sizeof(ActivationBlock));
        std::memcpy(sums_before[m], before + m * panel_rows, sizeof sums_before[m]);
    }
    for (int64_t m = num_tokens; m < tile_rows; m++)
        std::memset(static_cast<void*>(blocks[m]), 0, stretch.num_steps * sizeof(ActivationBlock));
    multiply_tile<sums>({&stretch, reinterpret_cast<const std::byte*>(blocks), sizeof blocks[0], sums_before[0],
                         sums_after[0], panel_rows});
    for (int64_t m = 0; m < num_tokens; m++) std::memcpy(after + m * after_token, sums_after[m], sizeof sums_after[m]);
}

// Codes whose lift is 128 get back their sign: the tile unit takes signed codes as they are.
inline void take_lift_off(const Stretch& stretch) {
    const int64_t size = int64_t{stretch.num_steps} * step_groups * group_bytes;
    for (int64_t i = 0; i < size; i += group_bytes)
        store_codes(stretch.codes + i, load_codes(stretch.codes + i) ^ 0x80);
}

template <Sums sums, int>
Isa tile(std::span<const Stretch> stretches, const std::byte* x, size_t token_bytes, int64_t num_tokens,
         const Outputs& out) {
    const int64_t whole = num_tokens / tile_rows * tile_rows, rest = num_tokens - whole;
    if constexpr (is_biased(sums))
        for (const Stretch& stretch : stretches) take_lift_off(stretch);
    const Tiles tiles(tile_config<Turns<sums>::dot_size>());
    for (int64_t token = 0; token < num_tokens; token += tile_rows) {
        for (size_t p = 0; p < stretches.size(); p++) {
            float* sums_of = out.sums + (p * num_tokens + token) * panel_rows;
            float* after = out.y ? out.y + token * out.y_stride + p * panel_rows : sums_of;
            const int64_t after_token = out.y ? out.y_stride : panel_rows;
            const std::byte* x_tile = x + token * token_bytes;
            if (token < whole)
                multiply_tile<sums>({&stretches[p], x_tile, token_bytes, sums_of, after, after_token});
            else
                multiply_rest<sums>(stretches[p], x_tile, token_bytes, rest, sums_of, after, after_token);
        }
    }
    return this_isa;
}
