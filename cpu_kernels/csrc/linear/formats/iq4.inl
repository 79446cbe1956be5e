// Codes of 4 bits that name one of 16 levels, not evenly spaced.

struct Iq4Codes {
    static constexpr int bits = 4, lift = 128;
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        // -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113; and 128 each
        static constexpr uint8_t levels[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
        read_plane_4(from, row, to);
        for (int g = 0; g < step_groups; g++) to[g] = look_up(levels, to[g]);
    }
};

struct IQ4_NL : OneScale, Iq4Codes {};

// d float16, 2 bytes with the high 2 bits of 8 scales, 4 bytes with the low 4.
struct IQ4_XS : Iq4Codes {
    static constexpr Sums sums = Sums::step;
    static constexpr int block_steps = 8;
    static constexpr int header_bytes = panel_rows * 8;

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        const Floats d = load_halves(block + row * 2);
        const auto byte = [&](int i) { return load_bytes(block + (2 + i) * panel_rows + row); };
        for (int i = 0; i < 8; i++) {
            const Ints low = byte(2 + i / 2) >> (i % 2 * 4) & 15;
            const Ints high = byte(i / 4) >> (i % 4 * 2) & 3;
            scale[i] = d * to_floats((low | high << 4) - 32);
        }
    }
};
