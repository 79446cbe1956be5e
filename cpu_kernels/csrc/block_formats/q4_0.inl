// Q4_0: 32 weights of 4 bits with one float16 scale. Drawn in quant/formats/legacy.py.

#ifdef QK_LAYOUT
struct q4_0 : BlockLayout {
    static constexpr int block_size = 32, block_bytes = 18, bits = 4, most_direct_tokens = 24;
    static constexpr Sums sums = Sums::step;
    static constexpr Field fields[] = {{0, 2, 2}};
    static void stored_codes(const uint8_t* block, uint8_t* q) { low_high_nibbles(block + 2, 16, q); }
};
#endif

#ifdef QK_DECODE
QK_DECODER(q4_0, OneScale<layout::q4_0>)
#endif

#ifdef QK_ENCODE
QK_ENCODER(q4_0, SignedMax<layout::q4_0>)
#endif

#ifdef QK_LINEAR
namespace {
struct Q4_0 : OneScale<layout::q4_0> {
    static constexpr int lift = 8;
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) { read_plane_4(from, row, to); }
};
}  // namespace
QK_PRODUCTS(q4_0, Q4_0)
#endif
