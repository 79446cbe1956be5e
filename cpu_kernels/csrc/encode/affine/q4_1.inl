// Q4_1 and Q5_1: quant/formats/q4_1.py.

template <int bits>
struct Affine32 {
    static constexpr int block_size = 32;
    static constexpr int block_bytes = bits == 4 ? 20 : 24;
    static constexpr float qmax = (1 << bits) - 1;

    template <bool weighted>
    static void encode(const Float* x, const Float*, bool, Int* words) {
        Float lowest = splat(65504.0f), highest = splat(-65504.0f);
        for (int i = 0; i < 32; i++) {
            lowest = min(lowest, x[i]);
            highest = max(highest, x[i]);
        }
        lowest = max(lowest, splat(-65504.0f));
        highest = min(highest, splat(65504.0f));
        const Float d = (highest - lowest) / splat(qmax);
        const Float inverse_d = inverse(d);
        Int q[32];
        for (int i = 0; i < 32; i++) {
            const Float scaled = (clamp(x[i], -65504.0f, 65504.0f) - lowest) * inverse_d + splat(0.5f);
            q[i] = to_int(clamp(scaled, 0.0f, qmax));
        }
        words[0] = stored_half(d) | stored_half(lowest) << 16;
        if constexpr (bits == 5) {
            *++words = pack_bits(q, 4);
            for (auto& code : q) code = code & splat_int(15);
        }
        pack_nibbles(q, words + 1);
    }
};
