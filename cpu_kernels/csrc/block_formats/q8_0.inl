// Q8_0: 32 weights of 8 bits with one float16 scale. Drawn in quant/formats/legacy.py.

#ifdef QK_LAYOUT
struct q8_0 : BlockLayout {
    static constexpr int block_size = 32, block_bytes = 34, bits = 8, most_direct_tokens = 4;
    static constexpr Sums sums = Sums::step;
    static constexpr Field fields[] = {{0, 2, 2}};
    static void stored_codes(const uint8_t* block, uint8_t* q) {
        for (int j = 0; j < 32; j++) q[j] = block[2 + j] ^ 128;  // q + 128
    }
};
#endif

#ifdef QK_DECODE
namespace {
struct Q8_0 : layout::q8_0 {
    static void decode(const uint8_t* block, float* out) {
        const Float d = half_at(block);
        const auto* qs = reinterpret_cast<const int8_t*>(block + 2);
        for (int i = 0; i < 32; i += width) store(out + i, d * load_bytes(qs + i));
    }
};
}  // namespace
QK_DECODER(q8_0, Q8_0)
#endif

#ifdef QK_ENCODE
namespace {
struct Q8_0 : layout::q8_0 {
    static constexpr Search best{{-124, 6, 13}, {}, 0, 0};

    template <bool weighted>
    static void encode(Float* x, const Float* w, bool is_best, Int* words) {
        Int q[32], codes[8];
        Int d;
        if (is_best) {
            d = fit_block<WholeLevels<-127, 127>, weighted>(x, w, best, q);
            for (auto& code : q) code = (code - splat_int(127)) & splat_int(255);
        } else {
            d = round_to_nearest(x, q);
        }
        for (int i = 0; i < 8; i++) codes[i] = word_of_bytes(q[4 * i], q[4 * i + 1], q[4 * i + 2], q[4 * i + 3]);
        store_after_half(d, codes, 8, words);
    }

    // Ties away from zero. Returns the bits of d.
    static Int round_to_nearest(const Float* x, Int* q) {
        Float absmax = splat(0.0f);
        for (int i = 0; i < 32; i++) absmax = max(absmax, abs(x[i]));
        const Float d = min(absmax / splat(127.0f), splat(65504.0f));
        const Float inverse_d = inverse(d);
        for (int i = 0; i < 32; i++) {
            const Float scaled = clamp(x[i] * inverse_d, -127.0f, 127.0f);
            const Int whole = to_int(scaled), one = splat_int(1), none = splat_int(0);
            const Float rest = scaled - to_float(whole);
            const Int up = select(rest >= splat(0.5f), one, none), down = select(rest <= splat(-0.5f), one, none);
            q[i] = (whole + up - down) & splat_int(255);
        }
        return stored_half(d);
    }
};
}  // namespace
QK_ENCODER(q8_0, Q8_0)
#endif

#ifdef QK_LINEAR
namespace {
struct Q8_0 : OneScale<layout::q8_0> {
    static constexpr int lift = 128;
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) { read_plane_8(from, row, to); }
};
}  // namespace
QK_PRODUCTS(q8_0, Q8_0)
#endif
