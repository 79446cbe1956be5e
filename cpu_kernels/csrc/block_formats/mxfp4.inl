// MXFP4: 32 weights of 4-bit floats (E2M1) with one power of two (E8M0) as scale. Drawn in quant/formats/fp4.py.

#ifdef QK_LAYOUT
struct mxfp4 : BlockLayout {
    static constexpr int block_size = 32, block_bytes = 17, bits = 4;
    static constexpr int most_direct_tokens = 16;  // that of IQ4_NL, whose codes are unpacked in the same way
    static constexpr Sums sums = Sums::step;
    static constexpr Field fields[] = {{0, 1, 1}};
    static constexpr int levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // E2M1, doubled
    static void stored_codes(const uint8_t* block, uint8_t* q) { low_high_nibbles(block + 1, 16, q); }
};
#endif

#ifdef QK_DECODE
namespace {
struct MXFP4 : layout::mxfp4 {
    static constexpr auto table = layout::level_table<float>(levels);

    static void decode(const uint8_t* block, float* out) {
        const int e = block[0];
        const Float d = float_of_bits(splat_int(e < 2 ? (e + 1) << 21 : (e - 1) << 23));  // 2^(e - 128)
        for (int i = 0; i < 32; i += width) store(out + i, d * look_up(table.at, nibbles(block + 1, i)));
    }
};
}  // namespace
QK_DECODER(mxfp4, MXFP4)
#endif

#ifdef QK_ENCODE
namespace {
struct MXFP4 : layout::mxfp4 {
    static constexpr float middle(int i) { return static_cast<float>(levels[i] + levels[i + 1]) / 2; }

    // The nearest of the 8 magnitudes, and its code; ties go down.
    static Float nearest(Float y) {
        Float value = splat(0.0f);
        for (int i = 0; i < 7; i++)
            value = value + select(y > splat(middle(i)), splat(levels[i + 1] - levels[i]), splat(0.0f));
        return value;
    }
    static Int code(Float y) {
        Int count = splat_int(0);
        for (int i = 0; i < 7; i++) count = count + select(y > splat(middle(i)), splat_int(1), splat_int(0));
        return count;
    }

    // Squared error of magnitudes under a scale.
    template <bool weighted>
    static Float cost(const Float* y, const Float* w, float scale) {
        Float sum = splat(0.0f);
        for (int i = 0; i < 32; i++) {
            const Float error = y[i] - nearest(y[i] * splat(2 / scale)) * splat(scale / 2);
            sum = sum + times_importance<weighted>(w, i, error) * error;
        }
        return sum;
    }

    template <bool weighted>
    static void encode(const Float* x, const Float* w, bool is_best, Int* words) {
        const Float zero = splat(0.0f);
        Float absmax = zero, y[32];
        for (int i = 0; i < 32; i++) absmax = max(absmax, abs(x[i]));
        Float e = max(to_float(bits_of(absmax) >> 23) - splat(2.0f), zero);
        const Float per_unit = float_of_bits((splat_int(254) - to_int(e)) << 23);
        for (int i = 0; i < 32; i++) y[i] = abs(x[i] * per_unit);  // below 8
        Float per_scale = splat(2.0f);
        if (weighted || is_best) {
            Float least = cost<weighted>(y, w, 1.0f), step = zero;
            for (const float candidate : {1.0f, -1.0f}) {
                if (candidate < 0 && !is_best) break;
                const float scale = candidate > 0 ? 2.0f : 0.5f;
                const Float error = cost<weighted>(y, w, scale);
                const Float moved = e + splat(candidate);  // beyond 252, 8 units are infinite
                const Mask better = (error < least) & (moved >= zero) & (moved <= splat(252.0f));
                least = select(better, error, least);
                step = select(better, splat(candidate), step);
                per_scale = select(better, splat(2 / scale), per_scale);
            }
            e = e + step;
        }
        Int q[32], codes[4];
        for (int i = 0; i < 32; i++) {
            const Float magnitude = y[i] * per_scale;
            const Mask negative = (x[i] < zero) & (magnitude > splat(middle(0)));  // -0 is not written
            q[i] = code(magnitude) | select(negative, splat_int(8), splat_int(0));
        }
        pack_nibbles(q, codes);
        words[0] = to_int(e) | codes[0] << 8;
        for (int i = 1; i < 4; i++) words[i] = codes[i - 1] >> 24 | codes[i] << 8;
        words[4] = codes[3] >> 24;
    }
};
}  // namespace
QK_ENCODER(mxfp4, MXFP4)
#endif

#ifdef QK_LINEAR
namespace {
struct MXFP4 : Stored<layout::mxfp4>, CodebookCodes<layout::mxfp4> {
    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        const Ints e = load_bytes(block + row);
        *scale = floats_of_bits(max((e - 1) << 23, (e - -1) << 21));  // 2^(e - 128); below e = 2 the second, subnormal
    }
};
}  // namespace
QK_PRODUCTS(mxfp4, MXFP4)
#endif
