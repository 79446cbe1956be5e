// Points of a grid with signs to codes: block_formats/lattice.h draws a step, and linear/grid.h a point's word. Two
// points are looked up per row, so a vector of indices has all that four groups of points of 4 need, or eight of 8.

template <class Layout>
struct LatticeCodes : Stored<Layout> {
    using Stored<Layout>::header_bytes, Stored<Layout>::step_bytes;
    static constexpr int lift = stretch_lift(Layout::sums, Stored<Layout>::code_bits);
    static constexpr auto table = layout::level_table<uint8_t>(Layout::levels, lift);
    static constexpr int vectors = 32 / Layout::point_size / 4, sign_bit = Layout::point_size == 4 ? 3 : 2;
    static constexpr int further = layout::further_bits<Layout>();

    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        Ints low[vectors];
        for (int v = 0; v < vectors; v++) low[v] = as_ints(plane_vector(from, v, row));
        Ints signs = as_ints(plane_vector(from, vectors, row));
        const Ints high = further_pairs(signs, from + (vectors + 1) * group_bytes + row);
        if constexpr (Layout::even_signs) signs = with_eighths(signs);
        for (int pair = 0; pair < 2 * vectors; pair++) {
            Ints index = low[pair / 2] >> (8 * (pair % 2)) & 0x00ff00ff;
            if constexpr (further != 0)
                index = index | (high << (8 - pair * further) & (((1 << further) - 1) * 0x01000100));
            levels_of(look_up_pairs<Layout::num_points>(grid_words<Layout>, index), pair, to);
        }
        for (int g = 0; g < step_groups; g++)
            to[g] = look_up(table.at, to[g] | move_bits(as_bytes(signs), 1, g / 2 + g % 2 * 4, sign_bit));
    }

    // Scales of 4 bits in the header, for a step or a half each: unit * d * (2 s + 1), exactly.
    static void nibble_scales(const uint8_t* block, int row, float unit, Floats* scale) {
        constexpr int count = Stored<Layout>::block_steps * scales_per_step(Layout::sums);
        const Floats d = load_halves(block + row * 2) * splat(unit);
        for (int i = 0; i < count; i++)
            scale[i] = d * odd(load_bytes(block + (2 + i / 2) * panel_rows + row) >> (i % 2 * 4) & 15);
    }

    // The same, of steps that keep their scale among the signs.
    static void sign_scales(const uint8_t* block, int row, float unit, Floats* scale) {
        const Floats d = load_halves(block + row * 2) * splat(unit);
        const uint8_t* signs = block + header_bytes + vectors * group_bytes + row * 4;
        for (int i = 0; i < Stored<Layout>::block_steps; i++, signs += step_bytes)
            scale[i] = d * odd(as_ints(load_codes(signs)) >> 28 & 15);
    }

private:
    static Floats odd(Ints s) { return to_floats((s << 1) - -1); }

    // The eighth sign of each 8 weights is the parity of the others.
    static Ints with_eighths(Ints signs) {
        const Ints known = signs & 0x0fffffff;
        Ints parity = known ^ known >> 16;
        parity = parity ^ parity >> 8;
        return known | (parity ^ parity >> 4) << 28;
    }

    // The points' further bits: of the first ones of all pairs in the low half, of the second ones in the high half.
    static Ints further_pairs(Ints signs, const uint8_t* bytes) {
        if constexpr (further == 0) return zero_ints();
        constexpr int width = 2 * vectors * further;
        const Ints all = Layout::even_signs ? signs >> 28 & 15 : load_bytes(bytes);
        return (all | all << (16 - width)) & (((1 << width) - 1) * 0x00010001);
    }

    // The levels of a pair of points: `pair` 2 v + i has the points i and i + 2 of the v-th four.
    static void levels_of(Ints words, int pair, Bytes* to) {
        if constexpr (Layout::point_size == 4) {
            to += pair / 2 * 4 + pair % 2;
            to[0] = as_bytes((words & 0x0f0f) | (words << 12 & 0x0f0f0000));
            to[2] = as_bytes((words >> 16 & 0x0f0f) | (words >> 4 & 0x0f0f0000));
        } else {
            to += 2 * pair;
            to[0] = as_bytes((words & 0x0303) | (words << 14 & 0x03030000));
            to[1] = as_bytes((words >> 4 & 0x0303) | (words << 10 & 0x03030000));
            to[4] = as_bytes((words >> 16 & 0x0303) | (words >> 2 & 0x03030000));
            to[5] = as_bytes((words >> 20 & 0x0303) | (words >> 6 & 0x03030000));
        }
    }
};
