// Blocks of 256: quant/formats/q2_k.py, q3_k.py, q4_k.py, q5_k.py, q6_k.py, iq4_xs.py, where the layouts are drawn.
// Included after small_blocks.inl.

struct Q2_K {
    static constexpr int block_size = 256;
    static constexpr int block_bytes = 84;

    static void decode(const Int* words, Float* x) {
        const Int *scales = words, *qs = words + 4;
        const Float d = low_half(words[20]), dmin = high_half(words[20]);
        for (int sub = 0; sub < 16; sub++) {
            const Float scale = d * to_float(byte_of<4>(scales, sub));
            const Float minimum = dmin * to_float(byte_of<4>(scales, sub, 4));
            const int half = sub / 8, run = sub / 2 % 4, first = 32 * half + 16 * (sub % 2);
            for (int i = 0; i < 16; i++)
                x[16 * sub + i] = scale * to_float(byte_of<2>(qs, first + i, 2 * run)) - minimum;
        }
    }
};

struct Q3_K {
    static constexpr int block_size = 256;
    static constexpr int block_bytes = 110;

    static Int scale_code(const Int* scales, int i) {
        return byte_of<4>(scales, i % 8, i / 8 * 4) | byte_of<2>(scales, 8 + i % 4, i / 4 * 2) << 4;
    }

    static void decode(const Int* words, Float* x) {
        const Int *hmask = words, *qs = words + 8, *scales = words + 24;
        const Float d = low_half(words[27]);
        for (int sub = 0; sub < 16; sub++) {
            const Float scale = d * to_float(scale_code(scales, sub) - splat_int(32));
            const int half = sub / 8, run = sub / 2 % 4, first = 16 * (sub % 2);
            for (int i = first; i < first + 16; i++) {
                const Int low = byte_of<2>(qs, 32 * half + i, 2 * run), high = byte_of<1>(hmask, i, sub / 2);
                const Float product = scale * to_float((low | high << 2) - splat_int(4));
                x[32 * (sub / 2) + i] = product + splat(0.0f);  // its grid's offset: -0 becomes 0
            }
        }
    }
};

template <int bits>
struct KScales {  // q4_k and q5_k
    static constexpr int block_size = 256;
    static constexpr int block_bytes = bits == 4 ? 144 : 176;

    static Int scale_code(const Int* scales, int i) {  // 0..7 scales, 8..15 minima
        const int of_four = i / 8 * 4 + i % 4;
        if (i % 8 < 4) return byte_of<6>(scales, of_four);
        return byte_of<4>(scales, 8 + i % 4, i / 8 * 4) | byte_of<2>(scales, of_four, 6) << 4;
    }

    static void decode(const Int* words, Float* x) {
        const Int *scales = words + 1, *qh = words + 4, *qs = words + (bits == 4 ? 4 : 12);
        const Float d = low_half(words[0]), dmin = high_half(words[0]);
        for (int sub = 0; sub < 8; sub++) {
            const Float scale = d * to_float(scale_code(scales, sub));
            const Float minimum = dmin * to_float(scale_code(scales, 8 + sub));
            for (int i = 0; i < 32; i++) {
                Int q = byte_of<4>(qs, sub / 2 * 32 + i, sub % 2 * 4);
                if constexpr (bits == 5) q = q | byte_of<1>(qh, i, sub) << 4;
                x[32 * sub + i] = scale * to_float(q) - minimum;
            }
        }
    }
};

struct Q6_K {
    static constexpr int block_size = 256;
    static constexpr int block_bytes = 210;

    static void decode(const Int* words, Float* x) {
        const Int *ql = words, *qh = words + 32, *scales = words + 48;
        const Float d = low_half(words[52]);
        for (int sub = 0; sub < 16; sub++) {
            const Float scale = d * signed_byte(byte_of(scales, sub));
            const int half = sub / 8, run = sub / 2 % 4, first = 16 * (sub % 2);
            for (int i = first; i < first + 16; i++) {
                const Int low = byte_of<4>(ql, 64 * half + 32 * (run % 2) + i, run / 2 * 4);
                const Int high = byte_of<2>(qh, 32 * half + i, 2 * run);
                const Float product = scale * to_float((low | high << 4) - splat_int(32));
                x[32 * (sub / 2) + i] = product + splat(0.0f);  // its grid's offset: -0 becomes 0
            }
        }
    }
};

struct IQ4_XS {
    static constexpr int block_size = 256;
    static constexpr int block_bytes = 136;

    static void decode(const Int* words, Float* x) {
        const Float d = low_half(words[0]);
        for (int sub = 0; sub < 8; sub++) {
            const Int code = field<4>(words[1], 4 * sub) | field<2>(words[0], 16 + 2 * sub) << 4;
            const Float scale = d * to_float(code - splat_int(32));
            for (int i = 0; i < 32; i++) x[32 * sub + i] = scale * look_up(codebook, nibble(words + 2 + 4 * sub, i));
        }
    }
};
