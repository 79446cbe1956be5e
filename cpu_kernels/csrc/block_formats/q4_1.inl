// Q4_1: 32 weights of 4 bits with a float16 scale and minimum. Drawn in quant/formats/legacy_min.py.

#ifdef QK_LAYOUT
struct q4_1 : BlockLayout {
    static constexpr int block_size = 32, block_bytes = 20, bits = 4, most_direct_tokens = 32;
    static constexpr Sums sums = Sums::step_minimum;
    static constexpr Field fields[] = {{0, 4, 2}};
    static void stored_codes(const uint8_t* block, uint8_t* q) { low_high_nibbles(block + 4, 16, q); }
};
#endif

#ifdef QK_DECODE
QK_DECODER(q4_1, ScaleAndMinimum<layout::q4_1>)
#endif

#ifdef QK_ENCODE
QK_ENCODER(q4_1, HalfAffine<layout::q4_1>)
#endif

#ifdef QK_LINEAR
namespace {
struct Q4_1 : ScaleAndMinimum<layout::q4_1> {
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) { read_plane_4(from, row, to); }
};
}  // namespace
QK_PRODUCTS(q4_1, Q4_1)
#endif
