// IQ3_XXS: 256 weights as 64 points of 4 with an even number of signs in 8, 4-bit scale per 32.
// Drawn in quant/formats/iq3.py.

#ifdef QK_LAYOUT
struct iq3_xxs : LatticeLayout<iq3_xxs> {
    static constexpr int block_bytes = 98, step_bytes = 16 * (8 + 4);
    static constexpr int point_size = 4, num_points = 256;
    static constexpr bool even_signs = true, scale_in_signs = true;
    static constexpr Sums sums = Sums::step;
    static constexpr Field fields[] = {{0, 2, 2}};
    static constexpr int levels[16] = {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};
    static LatticeStep read_step(const uint8_t* block, int s) {
        LatticeStep step{};
        for (int p = 0; p < 8; p++) step.point[p] = block[2 + 8 * s + p];
        step.take_scaled_signs(block + 66 + 4 * s);
        return step;
    }
};
#endif

#ifdef QK_LINEAR
namespace {
struct IQ3_XXS : LatticeCodes<layout::iq3_xxs> {
    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        sign_scales(block, row, 0.25f, scale);
    }
};
}  // namespace
QK_PRODUCTS(iq3_xxs, IQ3_XXS)
#endif
