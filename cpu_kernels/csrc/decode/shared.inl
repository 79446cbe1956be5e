// Common code of decoders. Included after driver.inl.

// Codes i to i + width of 32 whose first half is in the low nibbles of 16 bytes, the second in the high ones.
inline Int nibbles(const uint8_t* qs, int i) { return field<4>(load_codes(qs + i % 16), i / 16 * 4); }

// The same with a fifth bit each in qh.
inline Int nibbles_and_fifth(const uint8_t* qh, const uint8_t* qs, int i) {
    uint32_t fifth;
    std::memcpy(&fifth, qh, sizeof fifth);
    return nibbles(qs, i) | where_set(fifth >> i, 1 << 4);
}

template <class Layout>
struct OneScale : Layout {  // q4_0 and q5_0: d, the fifth bits, nibbles
    static constexpr int bits = Layout::bits;

    static void decode(const uint8_t* block, float* out) {
        const Float d = half_at(block);
        for (int i = 0; i < 32; i += width) {
            const Int q = bits == 4 ? nibbles(block + 2, i) : nibbles_and_fifth(block + 2, block + 6, i);
            store(out + i, d * to_float(q - splat_int(1 << (bits - 1))));
        }
    }
};

template <class Layout>
struct ScaleAndMinimum : Layout {  // q4_1 and q5_1: d, m, the fifth bits, nibbles
    static constexpr int bits = Layout::bits;

    static void decode(const uint8_t* block, float* out) {
        const Float d = half_at(block), m = half_at(block + 2);
        for (int i = 0; i < 32; i += width) {
            const Int q = bits == 4 ? nibbles(block + 4, i) : nibbles_and_fifth(block + 4, block + 8, i);
            store(out + i, d * to_float(q) + m);
        }
    }
};

template <class Layout>
struct KScales : Layout {  // q4_k and q5_k
    static constexpr int bits = Layout::bits;

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
