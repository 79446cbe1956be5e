// IQ2_XS: 256 weights as 32 points of 8 with an even number of signs, 4-bit scale per 16.
// Drawn in quant/formats/iq2.py.

#ifdef QK_LAYOUT
struct iq2_xs : LatticeLayout<iq2_xs> {
    static constexpr int block_bytes = 74, step_bytes = 16 * (4 + 4);
    static constexpr int point_size = 8, num_points = 512;
    static constexpr bool even_signs = true, scale_in_signs = false;
    static constexpr Sums sums = Sums::half;
    static constexpr Field fields[] = {{0, 2, 2}, {66, 8, 1}};
    static constexpr int levels[16] = {8, 25, 43, 0, -8, -25, -43, 0};
    static LatticeStep read_step(const uint8_t* block, int s) {
        LatticeStep step{};
        for (int p = 0; p < 4; p++) {
            const uint8_t* word = block + 2 + 8 * s + 2 * p;
            step.point[p] = word[0] | (word[1] & 1) << 8;
            step.signs[p] = with_eighth(word[1] >> 1);
        }
        return step;
    }
};
#endif

#ifdef QK_LINEAR
namespace {
struct IQ2_XS : LatticeCodes<layout::iq2_xs> {
    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        nibble_scales(block, row, 0.125f, scale);
    }
};
}  // namespace
QK_PRODUCTS(iq2_xs, IQ2_XS)
#endif
