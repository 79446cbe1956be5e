// Q4_0 and Q5_0: quant/formats/legacy.py, signed_max.py.

// Bits of a half and then `count` words: the words move up by two bytes.
inline void store_after_half(Int half, const Int* from, int count, Int* words) {
    words[0] = half | from[0] << 16;
    for (int i = 1; i < count; i++) words[i] = from[i - 1] >> 16 | from[i] << 16;
    words[count] = from[count - 1] >> 16;
}

// The first weight of largest magnitude takes code 0. Returns the bits of d.
template <int half_range>
inline Int round_to_signed_max(const Float* x, Int* q) {
    Float largest = splat(0.0f), extreme = splat(0.0f);
    for (int i = 0; i < 32; i++) {
        const Mask larger = abs(x[i]) > largest;
        extreme = select(larger, x[i], extreme);
        largest = max(largest, abs(x[i]));
    }
    const Float d = clamp(extreme / splat(-half_range), -65504.0f, 65504.0f);
    const Float inverse_d = inverse(d);
    for (int i = 0; i < 32; i++) {
        const Float scaled = x[i] * inverse_d + splat(half_range + 0.5f);
        q[i] = to_int(clamp(scaled, 0.0f, 2 * half_range - 1));
    }
    return half_bits(d);  // -0 for a block of zeros, as ggml has it
}

template <class Layout>
struct SignedMax : Layout {
    static constexpr int bits = Layout::bits;
    static constexpr int half_range = 1 << (bits - 1);
    static constexpr Search fast{{-half_range, 2, 9}, {}, 0, 0};
    static constexpr Search best{{-half_range, 3, 25}, {}, 1, 0};

    template <bool weighted>
    static void encode(Float* x, const Float* w, bool is_best, Int* words) {
        Int q[32], codes[5];
        Int d;
        if (weighted || is_best)
            d = fit_block<WholeLevels<-half_range, half_range - 1>, weighted>(x, w, is_best ? best : fast, q);
        else
            d = round_to_signed_max<half_range>(x, q);
        if constexpr (bits == 5) {
            codes[0] = pack_bits(q, 4);
            for (auto& code : q) code = code & splat_int(15);
        }
        pack_nibbles(q, codes + bits - 4);
        store_after_half(d, codes, bits, words);
    }
};
