// A float16 scale for 32 codes and nothing else.

struct OneScale {
    static constexpr Sums sums = Sums::step;
    static constexpr int block_steps = 1;
    static constexpr int header_bytes = panel_rows * 2;  // d

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) { *scale = load_halves(block + row * 2); }
};

struct Q4_0 : OneScale {
    static constexpr int bits = 4;
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        read_plane_4(from, row, to);
        for (int g = 0; g < step_groups; g++) to[g] = to[g] + (128 - 8);
    }
};

struct Q8_0 : OneScale {
    static constexpr int bits = 8;  // of q + 128
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) { read_plane_8(from, row, to); }
};
