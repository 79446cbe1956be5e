// Blocks of 32: quant/formats/q4_0.py, q4_1.py, q5_0.py, q5_1.py, q8_0.py, iq4_nl.py. Included after driver.inl.

// Codes i to i + width of 32 whose first half is in the low nibbles of 16 bytes, the second in the high ones.
inline Int nibbles(const uint8_t* qs, int i) { return field<4>(load_codes(qs + i % 16), i / 16 * 4); }

// The same with a fifth bit each in qh.
inline Int nibbles_and_fifth(const uint8_t* qh, const uint8_t* qs, int i) {
    uint32_t fifth;
    std::memcpy(&fifth, qh, sizeof fifth);
    return nibbles(qs, i) | where_set(fifth >> i, 1 << 4);
}

template <int bits>
struct OneScale {  // q4_0 and q5_0: d, the fifth bits, nibbles
    static constexpr int block_size = 32;
    static constexpr int block_bytes = bits == 4 ? 18 : 22;

    static void decode(const uint8_t* block, float* out) {
        const Float d = half_at(block);
        for (int i = 0; i < 32; i += width) {
            const Int q = bits == 4 ? nibbles(block + 2, i) : nibbles_and_fifth(block + 2, block + 6, i);
            store(out + i, d * to_float(q - splat_int(1 << (bits - 1))));
        }
    }
};

template <int bits>
struct ScaleAndMinimum {  // q4_1 and q5_1: d, m, the fifth bits, nibbles
    static constexpr int block_size = 32;
    static constexpr int block_bytes = bits == 4 ? 20 : 24;

    static void decode(const uint8_t* block, float* out) {
        const Float d = half_at(block), m = half_at(block + 2);
        for (int i = 0; i < 32; i += width) {
            const Int q = bits == 4 ? nibbles(block + 4, i) : nibbles_and_fifth(block + 4, block + 8, i);
            store(out + i, d * to_float(q) + m);
        }
    }
};

struct Q8_0 {
    static constexpr int block_size = 32;
    static constexpr int block_bytes = 34;

    static void decode(const uint8_t* block, float* out) {
        const Float d = half_at(block);
        const auto* qs = reinterpret_cast<const int8_t*>(block + 2);
        for (int i = 0; i < 32; i += width) store(out + i, d * load_bytes(qs + i));
    }
};

alignas(64) constexpr float codebook[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct IQ4_NL {
    static constexpr int block_size = 32;
    static constexpr int block_bytes = 18;

    static void decode(const uint8_t* block, float* out) {
        const Float d = half_at(block);
        for (int i = 0; i < 32; i += width) store(out + i, d * look_up(codebook, nibbles(block + 2, i)));
    }
};
