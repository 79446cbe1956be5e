// Q3_K: quant/formats/q3_k.py.

struct Q3_K {
    static constexpr int block_size = 256;
    static constexpr int block_bytes = 110;
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
