// Blocks of 32: a float16 scale, and where codes are not signed a float16 minimum. What is stored is q + lift.

struct OneScale {
    static constexpr Sums sums = Sums::step;
    static constexpr int block_steps = 1;
    static constexpr int header_bytes = panel_rows * 2;  // d

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        *scale = load_halves(block + row * 2);
    }
};

struct ScaleAndMinimum {
    static constexpr Sums sums = Sums::step_minimum;
    static constexpr int lift = 0;
    static constexpr int block_steps = 1;
    static constexpr int header_bytes = panel_rows * 4;  // d, m

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats* minimum) {
        *scale = load_halves(block + row * 2);
        *minimum = load_halves(block + panel_rows * 2 + row * 2);
    }
};

struct Q4_0 : OneScale {
    static constexpr int bits = 4, lift = 8;
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) { read_plane_4(from, row, to); }
};

struct Q5_0 : OneScale {
    static constexpr int bits = 5, lift = 16;
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        read_plane_4(from, row, to);
        add_plane_1(from + 4 * step_bytes_per_bit, row, 4, to);
    }
};

struct Q8_0 : OneScale {
    static constexpr int bits = 8, lift = 128;
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) { read_plane_8(from, row, to); }
};

struct Q4_1 : ScaleAndMinimum {
    static constexpr int bits = 4;
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) { read_plane_4(from, row, to); }
};

struct Q5_1 : ScaleAndMinimum {
    static constexpr int bits = 5;
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        read_plane_4(from, row, to);
        add_plane_1(from + 4 * step_bytes_per_bit, row, 4, to);
    }
};
