// Common code of formats: sizes that follow from the layout, and the reading of scales, minima and codebooks.

template <class Layout>
struct Stored {
    static constexpr Sums sums = Layout::sums;
    static constexpr int code_bits = layout::code_bits<Layout>();
    static constexpr int block_steps = Layout::block_size / step_size, step_bytes = layout::step_bytes<Layout>();
    static constexpr int header_bytes = panel_rows * Layout::block_bytes - block_steps * step_bytes;
};

template <class Layout>
struct OneScale : Stored<Layout> {
    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        *scale = load_halves(block + row * 2);
    }
};

template <class Layout>
struct ScaleAndMinimum : Stored<Layout> {
    static constexpr int lift = 0;

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats* minimum) {
        *scale = load_halves(block + row * 2);
        *minimum = load_halves(block + panel_rows * 2 + row * 2);
    }
};

// d, dmin, and 12 bytes that keep 8 scales and 8 minima of 6 bits; drawn in quant/formats/k_affine.py.
template <class Layout>
struct KScales : Stored<Layout> {
    static constexpr int lift = 0;

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats* minimum) {
        const Floats d = load_halves(block + row * 2);
        const Floats minus_dmin = -load_halves(block + panel_rows * 2 + row * 2);
        const auto byte = [&](int i) { return load_bytes(block + (4 + i) * panel_rows + row); };
        for (int i = 0; i < 4; i++) {
            const Ints first = byte(i), second = byte(4 + i), third = byte(8 + i);
            scale[i] = d * to_floats(first & 0x3f);
            minimum[i] = minus_dmin * to_floats(second & 0x3f);
            scale[4 + i] = d * to_floats((third & 0x0f) | (first >> 2 & 0x30));
            minimum[4 + i] = minus_dmin * to_floats(third >> 4 | (second >> 2 & 0x30));
        }
    }
};

// Codes of 4 bits that index the layout's levels, with a stretch's lift added to each.
template <class Layout>
struct CodebookCodes {
    static constexpr int lift = stretch_lift(Layout::sums, layout::code_bits<Layout>());
    static constexpr auto table = layout::level_table<uint8_t>(Layout::levels, lift);

    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        read_plane_4(from, row, to);
        for (int g = 0; g < step_groups; g++) to[g] = look_up(table.at, to[g]);
    }
};
