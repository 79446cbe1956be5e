// Q5_K: super-blocks of 256 weights of 5 bits, 6-bit scale and minimum per 32. Drawn in quant/formats/k_affine.py.

#ifdef QK_LAYOUT
struct q5_k : KQuantLayout {
    static constexpr int block_size = 256, block_bytes = 176, bits = 5, most_direct_tokens = 16;
    static constexpr Sums sums = Sums::step_minimum;
    static constexpr Field fields[] = {{0, 4, 2}, {4, 12, 1}};
    static void stored_codes(const uint8_t* block, uint8_t* q) {
        for (int i = 0; i < 4; i++) low_high_nibbles(block + 48 + 32 * i, 32, q + 64 * i);
        add_bits_of_runs(block + 16, 4, q);
    }
};
#endif

#ifdef QK_DECODE
QK_DECODER(q5_k, KScales<layout::q5_k>)
#endif

#ifdef QK_ENCODE
QK_ENCODER(q5_k, KScales<layout::q5_k>)
#endif

#ifdef QK_LINEAR
namespace {
struct Q5_K : KScales<layout::q5_k> {
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        read_plane_4(from, row, to);
        add_plane_1(from + 4 * step_bytes_per_bit, row, 4, to);
    }
};
}  // namespace
QK_PRODUCTS(q5_k, Q5_K)
#endif
