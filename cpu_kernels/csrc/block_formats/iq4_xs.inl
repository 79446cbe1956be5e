// IQ4_XS: super-blocks of 256 weights of 4 bits that index IQ4_NL's codebook, 6-bit scale per 32.
// Drawn in quant/formats/iq4.py.

#ifdef QK_LAYOUT
struct iq4_xs : BlockLayout {
    static constexpr int block_size = 256, block_bytes = 136, bits = 4, most_direct_tokens = 16;
    static constexpr Sums sums = Sums::step;
    static constexpr Field fields[] = {{0, 2, 2}, {2, 6, 1}};
    static constexpr auto& levels = iq4_nl::levels;
    static void stored_codes(const uint8_t* block, uint8_t* q) {
        for (int i = 0; i < 8; i++) low_high_nibbles(block + 8 + 16 * i, 16, q + 32 * i);
    }
};
#endif

#ifdef QK_DECODE
namespace {
struct IQ4_XS : layout::iq4_xs {
    static constexpr auto table = layout::level_table<float>(levels);

    static void decode(const uint8_t* block, float* out) {
        const uint8_t *high = block + 2, *low = block + 4, *qs = block + 8;
        const Float d = half_at(block);
        for (int sub = 0; sub < 8; sub++, out += 32, qs += 16) {
            const int code = (low[sub / 2] >> (sub % 2 * 4) & 15) | (high[sub / 4] >> (sub % 4 * 2) & 3) << 4;
            const Float scale = d * whole(code - 32);
            for (int i = 0; i < 32; i += width) store(out + i, scale * look_up(table.at, nibbles(qs, i)));
        }
    }
};
}  // namespace
QK_DECODER(iq4_xs, IQ4_XS)
#endif

#ifdef QK_ENCODE
namespace {
struct IQ4_XS : layout::iq4_xs {
    static constexpr Search fast{iq4_low_fast, iq4_high_fast, 1, 1};
    static constexpr Search best{iq4_low_best, iq4_high_best, 2, 2};

    template <bool weighted>
    static void encode(Float* x, const Float* w, bool is_best, Int* words) {
        const KLinear<Iq4Levels, 8, 32, weighted> k(x, w, is_best ? best : fast);
        words[0] = k.d_bits;
        words[1] = splat_int(0);
        for (int run = 0; run < 8; run++) {
            const Int scale = to_int(k.scales[run] + splat(32.0f));
            words[0] = words[0] | scale >> 4 << (16 + 2 * run);
            words[1] = words[1] | (scale & splat_int(15)) << 4 * run;
            const Float per_scale = k.per_scale(run);
            Int q[32];
            for (int i = 0; i < 32; i++) q[i] = Iq4Levels::code(x[32 * run + i] * per_scale);
            pack_nibbles(q, words + 2 + 4 * run);
        }
    }
};
}  // namespace
QK_ENCODER(iq4_xs, IQ4_XS)
#endif

#ifdef QK_LINEAR
namespace {
struct IQ4_XS : Stored<layout::iq4_xs>, CodebookCodes<layout::iq4_xs> {
    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        const Floats d = load_halves(block + row * 2);
        const auto byte = [&](int i) { return load_bytes(block + (2 + i) * panel_rows + row); };
        for (int i = 0; i < 8; i++) {
            const Ints low = byte(2 + i / 2) >> (i % 2 * 4) & 15;
            const Ints high = byte(i / 4) >> (i % 4 * 2) & 3;
            scale[i] = d * to_floats((low | high << 4) - 32);
        }
    }
};
}  // namespace
QK_PRODUCTS(iq4_xs, IQ4_XS)
#endif
