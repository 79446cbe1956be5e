// Q3_K: super-blocks of 256 weights of 3 bits, 6-bit scale per 16. Drawn in quant/formats/k_linear.py.

#ifdef QK_LAYOUT
struct q3_k : KQuantLayout {
    static constexpr int block_size = 256, block_bytes = 110, bits = 3, most_direct_tokens = 16;
    static constexpr Sums sums = Sums::half;
    static constexpr Field fields[] = {{108, 2, 2}, {96, 12, 1}};
    static void stored_codes(const uint8_t* block, uint8_t* q) {
        for (int half = 0; half < 2; half++) two_bits_of_runs(block + 32 + 32 * half, q + 128 * half);
        add_bits_of_runs(block, 2, q);
    }
};
#endif

#ifdef QK_DECODE
namespace {
struct Q3_K : layout::q3_k {
    static int scale_code(const uint8_t* scales, int i) {
        return (scales[i % 8] >> (i / 8 * 4) & 15) | (scales[8 + i % 4] >> (i / 4 * 2) & 3) << 4;
    }

    static void decode(const uint8_t* block, float* out) {
        const uint8_t *hmask = block, *qs = block + 32, *scales = block + 96;
        const Float d = half_at(block + 108);
        for (int sub = 0; sub < 16; sub++, out += 16) {
            const Float scale = d * whole(scale_code(scales, sub) - 32);
            const int half = sub / 8, run = sub / 2 % 4, first = 16 * (sub % 2);
            for (int i = 0; i < 16; i += width) {
                const Int low = field<2>(load_codes(qs + 32 * half + first + i), 2 * run);
                const Int high = field<1>(load_codes(hmask + first + i), sub / 2);
                const Float product = scale * to_float((low | high << 2) - splat_int(4));
                store(out + i, product + splat(0.0f));  // its grid's offset: -0 becomes 0
            }
        }
    }
};
}  // namespace
QK_DECODER(q3_k, Q3_K)
#endif

#ifdef QK_ENCODE
namespace {
struct Q3_K : layout::q3_k {
    static constexpr Search fast{{-4, 1.5, 7}, {}, 0, 1};
    static constexpr Search best{{-4, 2, 33}, {}, 1, 2};
    using Levels = WholeLevels<-4, 3>;

    template <bool weighted>
    static void encode(Float* x, const Float* w, bool is_best, Int* words) {
        const KLinear<Levels, 16, 32, weighted> k(x, w, is_best ? best : fast);
        Int *hmask = words, *qs = words + 8, *scales = words + 24;
        for (int i = 0; i < 24; i++) words[i] = splat_int(0);
        for (int run = 0; run < 8; run++) {  // runs of 32 weights
            Int q[32];
            for (int i = 0; i < 32; i++) q[i] = Levels::code(x[32 * run + i] * k.per_scale(2 * run + i / 16));
            for (int i = 0; i < 8; i++) {
                const Int codes = word_of_bytes(q[4 * i], q[4 * i + 1], q[4 * i + 2], q[4 * i + 3]);
                hmask[i] = hmask[i] | (codes >> 2 & splat_int(0x01010101)) << run;
                qs[8 * (run / 4) + i] = qs[8 * (run / 4) + i] | (codes & splat_int(0x03030303)) << 2 * (run % 4);
            }
        }
        Int s[16];
        for (int i = 0; i < 16; i++) s[i] = to_int(k.scales[i] + splat(32.0f));
        Int fours[4];
        for (int i = 0; i < 4; i++) fours[i] = word_of_bytes(s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]);
        const Int low = splat_int(0x0f0f0f0f), high = splat_int(0x03030303);
        scales[0] = (fours[0] & low) | (fours[2] & low) << 4;
        scales[1] = (fours[1] & low) | (fours[3] & low) << 4;
        scales[2] = splat_int(0);
        for (int i = 0; i < 4; i++) scales[2] = scales[2] | (fours[i] >> 4 & high) << 2 * i;
        words[27] = k.d_bits;
    }
};
}  // namespace
QK_ENCODER(q3_k, Q3_K)
#endif

#ifdef QK_LINEAR
namespace {
struct Q3_K : Stored<layout::q3_k> {
    static constexpr int lift = 4;

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        const Floats d = load_halves(block + row * 2);
        const auto byte = [&](int i) { return load_bytes(block + (2 + i) * panel_rows + row); };
        for (int i = 0; i < 4; i++) {
            const Ints first = byte(i), second = byte(4 + i), high = byte(8 + i);
            scale[i] = d * to_floats(((first & 15) | (high << 4 & 0x30)) - 32);
            scale[4 + i] = d * to_floats(((second & 15) | (high << 2 & 0x30)) - 32);
            scale[8 + i] = d * to_floats(((first >> 4) | (high & 0x30)) - 32);
            scale[12 + i] = d * to_floats(((second >> 4) | (high >> 2 & 0x30)) - 32);
        }
    }

    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        read_plane_2(from, row, to);
        add_plane_1(from + 2 * step_bytes_per_bit, row, 2, to);
    }
};
}  // namespace
QK_PRODUCTS(q3_k, Q3_K)
#endif
