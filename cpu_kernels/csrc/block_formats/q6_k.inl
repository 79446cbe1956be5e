// Q6_K: super-blocks of 256 weights of 6 bits, 8-bit scale per 16. Drawn in quant/formats/k_linear.py.

#ifdef QK_LAYOUT
struct q6_k : KQuantLayout {
    static constexpr int block_size = 256, block_bytes = 210, bits = 6, most_direct_tokens = 4;
    static constexpr Sums sums = Sums::half;
    static constexpr Field fields[] = {{208, 2, 2}, {192, 16, 1}};
    static void stored_codes(const uint8_t* block, uint8_t* q) {
        for (int half = 0; half < 2; half++) {
            uint8_t high[128];
            two_bits_of_runs(block + 128 + 32 * half, high);
            low_high_nibbles(block + 64 * half, 64, q + 128 * half);
            for (int k = 0; k < 128; k++) q[128 * half + k] |= high[k] << 4;
        }
    }
};
#endif

#ifdef QK_DECODE
namespace {
struct Q6_K : layout::q6_k {
    static void decode(const uint8_t* block, float* out) {
        const uint8_t *ql = block, *qh = block + 128;
        const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
        const Float d = half_at(block + 208);
        for (int sub = 0; sub < 16; sub++, out += 16) {
            const Float scale = d * whole(scales[sub]);
            const int half = sub / 8, run = sub / 2 % 4, first = 16 * (sub % 2);
            for (int i = 0; i < 16; i += width) {
                const Int low = field<4>(load_codes(ql + 64 * half + 32 * (run % 2) + first + i), run / 2 * 4);
                const Int high = field<2>(load_codes(qh + 32 * half + first + i), 2 * run);
                const Float product = scale * to_float((low | high << 4) - splat_int(32));
                store(out + i, product + splat(0.0f));  // its grid's offset: -0 becomes 0
            }
        }
    }
};
}  // namespace
QK_DECODER(q6_k, Q6_K)
#endif

#ifdef QK_ENCODE
namespace {
struct Q6_K : layout::q6_k {
    static constexpr Search fast{{-32, 4, 17}, {}, 0, 0};
    static constexpr Search best{{-29, 7, 57}, {}, 1, 2};
    using Levels = WholeLevels<-32, 31>;

    template <bool weighted>
    static void encode(Float* x, const Float* w, bool is_best, Int* words) {
        const KLinear<Levels, 16, 128, weighted> k(x, w, is_best ? best : fast);
        for (int half = 0; half < 2; half++) {
            Int codes[4][8];  // four codes per word, of four runs of 32 weights
            for (int run = 0; run < 4; run++) {
                const int first = 128 * half + 32 * run;
                Int q[32];
                for (int i = 0; i < 32; i++) q[i] = Levels::code(x[first + i] * k.per_scale((first + i) / 16));
                for (int i = 0; i < 8; i++)
                    codes[run][i] = word_of_bytes(q[4 * i], q[4 * i + 1], q[4 * i + 2], q[4 * i + 3]);
            }
            Int *ql = words + 16 * half, *qh = words + 32 + 8 * half;
            const Int low = splat_int(0x0f0f0f0f), high = splat_int(0x03030303);
            for (int i = 0; i < 8; i++) {
                ql[i] = (codes[0][i] & low) | (codes[2][i] & low) << 4;
                ql[8 + i] = (codes[1][i] & low) | (codes[3][i] & low) << 4;
                qh[i] = splat_int(0);
                for (int run = 0; run < 4; run++) qh[i] = qh[i] | (codes[run][i] >> 4 & high) << 2 * run;
            }
        }
        Int s[16];
        for (int i = 0; i < 16; i++) s[i] = to_int(k.scales[i]) & splat_int(255);
        for (int i = 0; i < 4; i++) words[48 + i] = word_of_bytes(s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]);
        words[52] = k.d_bits;
    }
};
}  // namespace
QK_ENCODER(q6_k, Q6_K)
#endif

#ifdef QK_LINEAR
namespace {
struct Q6_K : Stored<layout::q6_k> {
    static constexpr int lift = 32;

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        const Floats d = load_halves(block + row * 2);
        for (int i = 0; i < 16; i++) scale[i] = d * to_floats(load_signed_bytes(block + (2 + i) * panel_rows + row));
    }

    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        read_plane_4(from, row, to);
        add_plane_2(from + 4 * step_bytes_per_bit, row, 4, to);
    }
};
}  // namespace
QK_PRODUCTS(q6_k, Q6_K)
#endif
