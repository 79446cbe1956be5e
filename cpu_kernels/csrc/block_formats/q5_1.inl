// Q5_1: 32 weights of 5 bits with a float16 scale and minimum. Drawn in quant/formats/legacy_min.py.

#ifdef QK_LAYOUT
struct q5_1 : BlockLayout {
    static constexpr int block_size = 32, block_bytes = 24, bits = 5, most_direct_tokens = 16;
    static constexpr Sums sums = Sums::step_minimum;
    static constexpr Field fields[] = {{0, 4, 2}};
    static void stored_codes(const uint8_t* block, uint8_t* q) {
        low_high_nibbles(block + 8, 16, q);
        add_bits(block + 4, 4, q);
    }
};
#endif

#ifdef QK_DECODE
QK_DECODER(q5_1, ScaleAndMinimum<layout::q5_1>)
#endif

#ifdef QK_ENCODE
QK_ENCODER(q5_1, HalfAffine<layout::q5_1>)
#endif

#ifdef QK_LINEAR
namespace {
struct Q5_1 : ScaleAndMinimum<layout::q5_1> {
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        read_plane_4(from, row, to);
        add_plane_1(from + 4 * step_bytes_per_bit, row, 4, to);
    }
};
}  // namespace
QK_PRODUCTS(q5_1, Q5_1)
#endif
