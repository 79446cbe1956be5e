// IQ2_S: 256 weights as 32 points of 8 with free signs, 4-bit scale per 16. Drawn in quant/formats/iq2.py.

#ifdef QK_LAYOUT
struct iq2_s : LatticeLayout<iq2_s> {
    static constexpr int block_bytes = 82, step_bytes = 16 * (4 + 4 + 1);
    static constexpr int point_size = 8, num_points = 1024;
    static constexpr bool even_signs = false, scale_in_signs = false;
    static constexpr Sums sums = Sums::half;
    static constexpr Field fields[] = {{0, 2, 2}, {74, 8, 1}};
    static constexpr int levels[16] = {8, 25, 43, 0, -8, -25, -43, 0};
    static LatticeStep read_step(const uint8_t* block, int s) {
        LatticeStep step{};
        for (int p = 0; p < 4; p++) step.point[p] = block[2 + 4 * s + p] | (block[66 + s] >> 2 * p & 3) << 8;
        std::memcpy(step.signs, block + 34 + 4 * s, 4);
        return step;
    }
};
#endif

#ifdef QK_LINEAR
namespace {
struct IQ2_S : LatticeCodes<layout::iq2_s> {
    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        nibble_scales(block, row, 0.125f, scale);
    }
};
}  // namespace
QK_PRODUCTS(iq2_s, IQ2_S)
#endif
