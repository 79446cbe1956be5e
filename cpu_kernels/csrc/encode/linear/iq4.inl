// IQ4_NL and IQ4_XS: quant/formats/iq4_nl.py, iq4_xs.py.

constexpr Targets iq4_low_fast{-128, 24, 9}, iq4_high_fast{116, 20, 6};
constexpr Targets iq4_low_best{-130, 30, 25}, iq4_high_best{117.5, 22.5, 19};

struct IQ4_NL {
    static constexpr int block_size = 32;
    static constexpr int block_bytes = 18;
    static constexpr Search fast{iq4_low_fast, iq4_high_fast, 1, 0};
    static constexpr Search best{iq4_low_best, iq4_high_best, 2, 0};

    template <bool weighted>
    static void encode(Float* x, const Float* w, bool is_best, Int* words) {
        Int q[32], codes[4];
        const Int d = fit_block<Codebook, weighted>(x, w, is_best ? best : fast, q);
        pack_nibbles(q, codes);
        store_after_half(d, codes, 4, words);
    }
};

struct IQ4_XS {
    static constexpr int block_size = 256;
    static constexpr int block_bytes = 136;
    static constexpr Search fast{iq4_low_fast, iq4_high_fast, 1, 1};
    static constexpr Search best{iq4_low_best, iq4_high_best, 2, 2};

    template <bool weighted>
    static void encode(Float* x, const Float* w, bool is_best, Int* words) {
        const KLinear<Codebook, 8, 32, weighted> k(x, w, is_best ? best : fast);
        words[0] = k.d_bits;
        words[1] = splat_int(0);
        for (int run = 0; run < 8; run++) {
            const Int scale = to_int(k.scales[run] + splat(32.0f));
            words[0] = words[0] | scale >> 4 << (16 + 2 * run);
            words[1] = words[1] | (scale & splat_int(15)) << 4 * run;
            const Float per_scale = k.per_scale(run);
            Int q[32];
            for (int i = 0; i < 32; i++) q[i] = Codebook::code(x[32 * run + i] * per_scale);
            pack_nibbles(q, words + 2 + 4 * run);
        }
    }
};
