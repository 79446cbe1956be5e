// Q6_K: quant/formats/q6_k.py.

struct Q6_K {
    static constexpr int block_size = 256;
    static constexpr int block_bytes = 210;
    static constexpr Search fast{{-32, 4, 17}, {}, 0, 0};
    static constexpr Search best{{-29, 7, 57}, {}, 1, 2};
    using Levels = WholeLevels<-32, 31>;

    template <bool weighted>
    static void encode(Float* x, const Float* w, bool is_best, Int* words) {
        const KLinear<Levels, 16, 128, weighted> k(x, w, is_best ? best : fast);
        for (int half = 0; half < 2; half++) {
            Int codes[4][8];  // four codes a word, of four runs of 32 weights
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
