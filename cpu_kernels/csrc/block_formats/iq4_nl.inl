// IQ4_NL: 32 weights of 4 bits that index a codebook, with one float16 scale. Drawn in quant/formats/iq4.py.

#ifdef QK_LAYOUT
struct iq4_nl : BlockLayout {
    static constexpr int block_size = 32, block_bytes = 18, bits = 4, most_direct_tokens = 16;
    static constexpr Sums sums = Sums::step;
    static constexpr Field fields[] = {{0, 2, 2}};
    static constexpr int levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    static void stored_codes(const uint8_t* block, uint8_t* q) { low_high_nibbles(block + 2, 16, q); }
};
#endif

#ifdef QK_DECODE
namespace {
struct IQ4_NL : layout::iq4_nl {
    static constexpr auto table = layout::level_table<float>(levels);

    static void decode(const uint8_t* block, float* out) {
        const Float d = half_at(block);
        for (int i = 0; i < 32; i += width) store(out + i, d * look_up(table.at, nibbles(block + 2, i)));
    }
};
}  // namespace
QK_DECODER(iq4_nl, IQ4_NL)
#endif

#ifdef QK_ENCODE
namespace {
struct IQ4_NL : layout::iq4_nl {
    static constexpr Search fast{iq4_low_fast, iq4_high_fast, 1, 0};
    static constexpr Search best{iq4_low_best, iq4_high_best, 2, 0};

    template <bool weighted>
    static void encode(Float* x, const Float* w, bool is_best, Int* words) {
        Int q[32], codes[4];
        const Int d = fit_block<Iq4Levels, weighted>(x, w, is_best ? best : fast, q);
        pack_nibbles(q, codes);
        store_after_half(d, codes, 4, words);
    }
};
}  // namespace
QK_ENCODER(iq4_nl, IQ4_NL)
#endif

#ifdef QK_LINEAR
namespace {
struct IQ4_NL : OneScale<layout::iq4_nl>, CodebookCodes<layout::iq4_nl> {};
}  // namespace
QK_PRODUCTS(iq4_nl, IQ4_NL)
#endif
