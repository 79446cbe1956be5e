// Q4_K and Q5_K: quant/formats/k_affine.py, q5_k.py, k_scales.py.

// 8 scales and 8 minima below 64 -> 3 words; k_scales.py draws them.
inline void pack_k_scales(const Float* scales, const Float* minima, Int* words) {
    Int s[8], m[8], first[4], second[4], third[4];
    for (int i = 0; i < 8; i++) {
        s[i] = to_int(scales[i]);
        m[i] = to_int(minima[i]);
    }
    for (int i = 0; i < 4; i++) {
        first[i] = s[i] | s[i + 4] >> 4 << 6;
        second[i] = m[i] | m[i + 4] >> 4 << 6;
        third[i] = (s[i + 4] & splat_int(15)) | (m[i + 4] & splat_int(15)) << 4;
    }
    words[0] = word_of_bytes(first[0], first[1], first[2], first[3]);
    words[1] = word_of_bytes(second[0], second[1], second[2], second[3]);
    words[2] = word_of_bytes(third[0], third[1], third[2], third[3]);
}

template <class Layout>
struct KScales : Layout {
    static constexpr int bits = Layout::bits;
    static constexpr KAffineSearch fast{{-3.0, 1.0, 8, 3, 2}, 1, {{1, 1}}};
    static constexpr KAffineSearch best{{-3.0, 1.0, 8, 3, 2}, 2, {{4, 8}, {2, 4}}};

    template <bool weighted>
    static void encode(const Float* x, const Float* w, bool longer, Int* words) {
        const KAffine<weighted, (1 << bits) - 1, 32, 63> k(x, w, longer ? best : fast);
        words[0] = stored_half(k.d) | stored_half(k.dmin) << 16;
        pack_k_scales(k.scales, k.minima, words + 1);
        Int* qh = words + 4;
        Int* qs = bits == 5 ? words + 12 : words + 4;
        if constexpr (bits == 5)
            for (int i = 0; i < 8; i++) qh[i] = splat_int(0);
        for (int sub = 0; sub < 8; sub++) {
            Int q[32];
            k.codes(sub, q);
            // Two sub-blocks share 32 bytes: the even one has the low nibbles. The fifth bits of all 8 share 32 more.
            Int* const pair = qs + sub / 2 * 8;
            for (int i = 0; i < 8; i++) {
                const Int word = word_of_bytes(q[4 * i], q[4 * i + 1], q[4 * i + 2], q[4 * i + 3]);
                const Int low = word & splat_int(0x0f0f0f0f);
                pair[i] = sub % 2 ? pair[i] | low << 4 : low;
                if constexpr (bits == 5) qh[i] = qh[i] | (word >> 4 & splat_int(0x01010101)) << sub;
            }
        }
    }
};
