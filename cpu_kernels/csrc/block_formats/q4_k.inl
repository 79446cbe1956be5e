// Q4_K: super-blocks of 256 weights of 4 bits, 6-bit scale and minimum per 32. Drawn in quant/formats/k_affine.py.

#ifdef QK_LAYOUT
struct q4_k : KQuantLayout {
    static constexpr int block_size = 256, block_bytes = 144, bits = 4, most_direct_tokens = 32;
    static constexpr Sums sums = Sums::step_minimum;
    static constexpr Field fields[] = {{0, 4, 2}, {4, 12, 1}};
    static void stored_codes(const uint8_t* block, uint8_t* q) {
        for (int i = 0; i < 4; i++) low_high_nibbles(block + 16 + 32 * i, 32, q + 64 * i);
    }
};
#endif

#ifdef QK_DECODE
QK_DECODER(q4_k, KScales<layout::q4_k>)
#endif

#ifdef QK_ENCODE
QK_ENCODER(q4_k, KScales<layout::q4_k>)
#endif

#ifdef QK_LINEAR
namespace {
struct Q4_K : KScales<layout::q4_k> {
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) { read_plane_4(from, row, to); }
};
}  // namespace
QK_PRODUCTS(q4_k, Q4_K)
#endif
