// Blocks of 32: quant/formats/q4_0.py, q4_1.py, q5_0.py, q5_1.py, q8_0.py, iq4_nl.py. Included after driver.inl.

template <int bits>
struct OneScale {  // q4_0 and q5_0: d, the fifth bits, nibbles
    static constexpr int block_size = 32;
    static constexpr int block_bytes = bits == 4 ? 18 : 22;

    static void decode(const Int* words, Float* x) {
        const Float d = low_half(words[0]);
        const AfterHalf<bits> rest(words);
        const Int* qs = rest.words + bits - 4;
        for (int i = 0; i < 32; i++) {
            Int q = nibble(qs, i);
            if constexpr (bits == 5) q = q | field<1>(rest.words[0], i) << 4;
            x[i] = d * to_float(q - splat_int(1 << (bits - 1)));
        }
    }
};

template <int bits>
struct ScaleAndMinimum {  // q4_1 and q5_1: d, m, the fifth bits, nibbles
    static constexpr int block_size = 32;
    static constexpr int block_bytes = bits == 4 ? 20 : 24;

    static void decode(const Int* words, Float* x) {
        const Float d = low_half(words[0]), m = high_half(words[0]);
        const Int* qs = words + bits - 3;
        for (int i = 0; i < 32; i++) {
            Int q = nibble(qs, i);
            if constexpr (bits == 5) q = q | field<1>(words[1], i) << 4;
            x[i] = d * to_float(q) + m;
        }
    }
};

struct Q8_0 {
    static constexpr int block_size = 32;
    static constexpr int block_bytes = 34;

    static void decode(const Int* words, Float* x) {
        const Float d = low_half(words[0]);
        const AfterHalf<8> qs(words);
        for (int i = 0; i < 32; i++) x[i] = d * signed_byte(byte_of(qs.words, i));
    }
};

alignas(64) constexpr float codebook[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct IQ4_NL {
    static constexpr int block_size = 32;
    static constexpr int block_bytes = 18;

    static void decode(const Int* words, Float* x) {
        const Float d = low_half(words[0]);
        const AfterHalf<4> qs(words);
        for (int i = 0; i < 32; i++) x[i] = d * look_up(codebook, nibble(qs.words, i));
    }
};
