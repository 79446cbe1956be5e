// Q5_0: 32 weights of 5 bits with one float16 scale. Drawn in quant/formats/legacy.py.

#ifdef QK_LAYOUT
struct q5_0 : BlockLayout {
    static constexpr int block_size = 32, block_bytes = 22, bits = 5, most_direct_tokens = 8;
    static constexpr Sums sums = Sums::step;
    static constexpr Field fields[] = {{0, 2, 2}};
    static void stored_codes(const uint8_t* block, uint8_t* q) {
        low_high_nibbles(block + 6, 16, q);
        add_bits(block + 2, 4, q);
    }
};
#endif

#ifdef QK_DECODE
QK_DECODER(q5_0, OneScale<layout::q5_0>)
#endif

#ifdef QK_ENCODE
QK_ENCODER(q5_0, SignedMax<layout::q5_0>)
#endif

#ifdef QK_LINEAR
namespace {
struct Q5_0 : OneScale<layout::q5_0> {
    static constexpr int lift = 16;
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        read_plane_4(from, row, to);
        add_plane_1(from + 4 * step_bytes_per_bit, row, 4, to);
    }
};
}  // namespace
QK_PRODUCTS(q5_0, Q5_0)
#endif
