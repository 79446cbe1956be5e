// Q2_K: super-blocks of 256 weights of 2 bits, 4-bit scale and minimum per 16. Drawn in quant/formats/k_affine.py.

#ifdef QK_LAYOUT
struct q2_k : KQuantLayout {
    static constexpr int block_size = 256, block_bytes = 84, bits = 2, most_direct_tokens = 16;
    static constexpr Sums sums = Sums::step_half_minima;
    static constexpr Field fields[] = {{80, 4, 2}, {0, 16, 1}};
    static void stored_codes(const uint8_t* block, uint8_t* q) {
        for (int half = 0; half < 2; half++) two_bits_of_runs(block + 16 + 32 * half, q + 128 * half);
    }
};
#endif

#ifdef QK_DECODE
namespace {
struct Q2_K : layout::q2_k {
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
}  // namespace
QK_DECODER(q2_k, Q2_K)
#endif

#ifdef QK_ENCODE
namespace {
struct Q2_K : layout::q2_k {
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
}  // namespace
QK_ENCODER(q2_k, Q2_K)
#endif

#ifdef QK_LINEAR
namespace {
struct Q2_K : Stored<layout::q2_k> {
    static constexpr int lift = 0;

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats* minimum) {
        const Floats d = load_halves(block + row * 2);
        const Floats minus_dmin = -load_halves(block + panel_rows * 2 + row * 2);
        for (int step = 0; step < block_steps; step++) scale[step] = d;
        for (int half = 0; half < 2 * block_steps; half++)
            minimum[half] = minus_dmin * to_floats(load_bytes(block + (4 + half) * panel_rows + row) >> 4);
    }

    // Codes times their half's scale, at most 3 * 15, so that one float scale serves the super-block.
    static void codes(const uint8_t* block, const uint8_t* from, int row, int step, Bytes* to) {
        read_plane_2(from, row, to);
        for (int half = 0; half < 2; half++) {
            const Ints scale = load_bytes(block + (4 + 2 * step + half) * panel_rows + row) & 15;
            for (int g = 0; g < 4; g++) to[4 * half + g] = multiply_small(to[4 * half + g], scale);
        }
    }
};
}  // namespace
QK_PRODUCTS(q2_k, Q2_K)
#endif
