// d, dmin, and 12 bytes that keep 8 scales and 8 minima of 6 bits; drawn in quant/formats/k_scales.py.
struct KScales {
    static constexpr Sums sums = Sums::step_minimum;
    static constexpr int lift = 0;
    static constexpr int block_steps = 8;
    static constexpr int header_bytes = panel_rows * 16;

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

struct Q4_K : KScales {
    static constexpr int bits = 4;
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) { read_plane_4(from, row, to); }
};

struct Q5_K : KScales {
    static constexpr int bits = 5;
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        read_plane_4(from, row, to);
        add_plane_1(from + 4 * step_bytes_per_bit, row, 4, to);
    }
};
