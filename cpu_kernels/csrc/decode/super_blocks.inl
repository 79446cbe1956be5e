// Blocks of 256: quant/formats/q2_k.py, q3_k.py, q4_k.py, q5_k.py, q6_k.py, iq4_xs.py, where the layouts are drawn.
// Included after small_blocks.inl.

struct Q2_K {
    static constexpr int block_size = 256;
    static constexpr int block_bytes = 84;

    static void decode(const uint8_t* block, float* out) {
        const uint8_t *scales = block, *qs = block + 16;
        const Float d = half_at(block + 80), dmin = half_at(block + 82);
        for (int sub = 0; sub < 16; sub++, out += 16) {
            const Float scale = d * whole(scales[sub] & 15), minimum = dmin * whole(scales[sub] >> 4);
            const int half = sub / 8, run = sub / 2 % 4, first = 32 * half + 16 * (sub % 2);
            for (int i = 0; i < 16; i += width)
                store(out + i, scale * to_float(field<2>(load_codes(qs + first + i), 2 * run)) - minimum);
        }
    }
};

struct Q3_K {
    static constexpr int block_size = 256;
    static constexpr int block_bytes = 110;

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

template <int bits>
struct KScales {  // q4_k and q5_k
    static constexpr int block_size = 256;
    static constexpr int block_bytes = bits == 4 ? 144 : 176;

    static int scale_code(const uint8_t* scales, int i) {  // 0..7 scales, 8..15 minima
        const int of_four = i / 8 * 4 + i % 4;
        if (i % 8 < 4) return scales[of_four] & 63;
        return (scales[8 + i % 4] >> (i / 8 * 4) & 15) | scales[of_four] >> 6 << 4;
    }

    static void decode(const uint8_t* block, float* out) {
        const uint8_t *scales = block + 4, *qh = block + 16, *qs = block + (bits == 4 ? 16 : 48);
        const Float d = half_at(block), dmin = half_at(block + 2);
        for (int sub = 0; sub < 8; sub++, out += 32) {
            const Float scale = d * whole(scale_code(scales, sub)), minimum = dmin * whole(scale_code(scales, 8 + sub));
            for (int i = 0; i < 32; i += width) {
                Int q = field<4>(load_codes(qs + sub / 2 * 32 + i), sub % 2 * 4);
                if constexpr (bits == 5) q = q | field<1>(load_codes(qh + i), sub) << 4;
                store(out + i, scale * to_float(q) - minimum);
            }
        }
    }
};

struct Q6_K {
    static constexpr int block_size = 256;
    static constexpr int block_bytes = 210;

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

struct IQ4_XS {
    static constexpr int block_size = 256;
    static constexpr int block_bytes = 136;

    static void decode(const uint8_t* block, float* out) {
        const uint8_t *high = block + 2, *low = block + 4, *qs = block + 8;
        const Float d = half_at(block);
        for (int sub = 0; sub < 8; sub++, out += 32, qs += 16) {
            const int code = (low[sub / 2] >> (sub % 2 * 4) & 15) | (high[sub / 4] >> (sub % 4 * 2) & 3) << 4;
            const Float scale = d * whole(code - 32);
            for (int i = 0; i < 32; i += width) store(out + i, scale * look_up(codebook, nibbles(qs, i)));
        }
    }
};
