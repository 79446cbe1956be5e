// IQ2_XXS: 256 weights as 32 points of 8 with an even number of signs, 4-bit scale per 32.
// Drawn in quant/formats/iq2.py.

#ifdef QK_LAYOUT
struct iq2_xxs : LatticeLayout<iq2_xxs> {
    static constexpr int block_bytes = 66, step_bytes = 16 * (4 + 4);
    static constexpr int point_size = 8, num_points = 256;
    static constexpr bool even_signs = true, scale_in_signs = true;
    static constexpr Sums sums = Sums::step;
    static constexpr Field fields[] = {{0, 2, 2}};
    static constexpr int levels[16] = {8, 25, 43, 0, -8, -25, -43, 0};
    static LatticeStep read_step(const uint8_t* block, int s) {
        LatticeStep step{};
        for (int p = 0; p < 4; p++) step.point[p] = block[2 + 8 * s + p];
        step.take_scaled_signs(block + 6 + 8 * s);
        return step;
    }
};
#endif

#ifdef QK_LINEAR
namespace {
struct IQ2_XXS : LatticeCodes<layout::iq2_xxs> {
    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        sign_scales(block, row, 0.125f, scale);
    }
};
}  // namespace
QK_PRODUCTS(iq2_xxs, IQ2_XXS)
#endif
