// TQ2_0: 256 weights of -1, 0 or 1 in 2 bits each, with one scale. Drawn in quant/formats/ternary.py.

#ifdef QK_LAYOUT
struct tq2_0 : BlockLayout {
    static constexpr int block_size = 256, block_bytes = 66, bits = 2;
    static constexpr int most_direct_tokens = 32;  // that of w2, whose codes are unpacked in the same way
    static constexpr Sums sums = Sums::span;
    static constexpr Field fields[] = {{64, 2, 2}};
    static void stored_codes(const uint8_t* block, uint8_t* q) {
        for (int half = 0; half < 2; half++) two_bits_of_runs(block + 32 * half, q + 128 * half);
    }
};
#endif

#ifdef QK_LINEAR
namespace {
struct TQ2_0 : OneScale<layout::tq2_0> {
    static constexpr int lift = 1;

    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) { read_plane_2(from, row, to); }
};
}  // namespace
QK_PRODUCTS(tq2_0, TQ2_0)
#endif
