// Q2_K: quant/formats/q2_k.py.

struct Q2K {
    static constexpr int block_size = 256;
    static constexpr int block_bytes = 84;
    static constexpr KAffineSearch fast{{-0.6, 0.4, 7, 3, 2}, 1, {{1, 1}}};
    static constexpr KAffineSearch best{{-0.6, 0.2, 14, 3, 3}, 2, {{2, 2}, {2, 2}}};

    template <bool weighted>
    static void encode(const Float* x, const Float* w, bool longer, Int* words) {
        const KAffine<weighted, 3, 16, 15> k(x, w, longer ? best : fast);
        Int scales[16];
        for (int i = 0; i < 16; i++) scales[i] = to_int(k.scales[i]) | to_int(k.minima[i]) << 4;
        for (int i = 0; i < 4; i++, words++)
            *words = word_of_bytes(scales[4 * i], scales[4 * i + 1], scales[4 * i + 2], scales[4 * i + 3]);
        for (int i = 0; i < 16; i++) words[i] = splat_int(0);
        for (int sub = 0; sub < 16; sub++) {
            Int q[16];
            k.codes(sub, q);
            // A half of 128 weights is 32 bytes, run r of 32 weights in bits 2r and 2r + 1 of each.
            Int* const run = words + sub / 8 * 8 + sub % 2 * 4;
            for (int i = 0; i < 4; i++) {
                const Int word = word_of_bytes(q[4 * i], q[4 * i + 1], q[4 * i + 2], q[4 * i + 3]);
                run[i] = run[i] | word << (sub % 8 / 2 * 2);
            }
        }
        words[16] = stored_half(k.d) | stored_half(k.dmin) << 16;
    }
};
