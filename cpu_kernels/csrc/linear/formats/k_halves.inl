// Super-blocks of 256 with a scale for each 16: the halves of a step.

// d float16, dmin float16, then 16 bytes: 4 bits of scale, 4 of minimum.
struct Q2_K {
    static constexpr Sums sums = Sums::step_half_minima;
    static constexpr int block_steps = 8;
    static constexpr int header_bytes = panel_rows * 20;
    static constexpr int bits = 2, lift = 0;

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats* minimum) {
        const Floats d = load_halves(block + row * 2);
        const Floats minus_dmin = -load_halves(block + panel_rows * 2 + row * 2);
        for (int step = 0; step < block_steps; step++) scale[step] = d;
        for (int half = 0; half < 2 * block_steps; half++)
            minimum[half] = minus_dmin * to_floats(load_bytes(block + (4 + half) * panel_rows + row) >> 4);
    }

    // Codes times their half's scale, at most 3 * 15, so that one float scale serves the super-block.
    static void codes(const uint8_t* block, const uint8_t* from, int row, int step, Bytes* to) {
        read_plane_2(from, row, to);
        for (int half = 0; half < 2; half++) {
            const Ints scale = load_bytes(block + (4 + 2 * step + half) * panel_rows + row) & 15;
            for (int g = 0; g < 4; g++) to[4 * half + g] = multiply_small(to[4 * half + g], scale);
        }
    }
};

// d float16, then 12 bytes of 16 scales of 6 bits; drawn in quant/formats/q3_k.py.
struct Q3_K {
    static constexpr Sums sums = Sums::half;
    static constexpr int block_steps = 8;
    static constexpr int header_bytes = panel_rows * 14;
    static constexpr int bits = 3, lift = 4;

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        const Floats d = load_halves(block + row * 2);
        const auto byte = [&](int i) { return load_bytes(block + (2 + i) * panel_rows + row); };
        for (int i = 0; i < 4; i++) {
            const Ints first = byte(i), second = byte(4 + i), high = byte(8 + i);
            scale[i] = d * to_floats(((first & 15) | (high << 4 & 0x30)) - 32);
            scale[4 + i] = d * to_floats(((second & 15) | (high << 2 & 0x30)) - 32);
            scale[8 + i] = d * to_floats(((first >> 4) | (high & 0x30)) - 32);
            scale[12 + i] = d * to_floats(((second >> 4) | (high >> 2 & 0x30)) - 32);
        }
    }

    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        read_plane_2(from, row, to);
        add_plane_1(from + 2 * step_bytes_per_bit, row, 2, to);
    }
};

// d float16, then 16 scales of int8.
struct Q6_K {
    static constexpr Sums sums = Sums::half;
    static constexpr int block_steps = 8;
    static constexpr int header_bytes = panel_rows * 18;
    static constexpr int bits = 6, lift = 32;

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        const Floats d = load_halves(block + row * 2);
        for (int i = 0; i < 16; i++)
            scale[i] = d * to_floats(load_signed_bytes(block + (2 + i) * panel_rows + row));
    }

    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        read_plane_4(from, row, to);
        add_plane_2(from + 4 * step_bytes_per_bit, row, 4, to);
    }
};
