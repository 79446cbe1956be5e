// IQ3_S: 256 weights as 64 points of 4 with free signs, 4-bit scale per 32. Drawn in quant/formats/iq3.py.

#ifdef QK_LAYOUT
struct iq3_s : LatticeLayout<iq3_s> {
    static constexpr int block_bytes = 110, step_bytes = 16 * (8 + 4 + 1);
    static constexpr int point_size = 4, num_points = 512;
    static constexpr bool even_signs = false, scale_in_signs = false;
    static constexpr Sums sums = Sums::step;
    static constexpr Field fields[] = {{0, 2, 2}, {106, 4, 1}};
    static constexpr int levels[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};
    static LatticeStep read_step(const uint8_t* block, int s) {
        LatticeStep step{};
        for (int p = 0; p < 8; p++) step.point[p] = block[2 + 8 * s + p] | (block[66 + s] >> p & 1) << 8;
        std::memcpy(step.signs, block + 74 + 4 * s, 4);
        return step;
    }
};
#endif

#ifdef QK_LINEAR
namespace {
struct IQ3_S : LatticeCodes<layout::iq3_s> {
    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        nibble_scales(block, row, 1.0f, scale);
    }
};
}  // namespace
QK_PRODUCTS(iq3_s, IQ3_S)
#endif
