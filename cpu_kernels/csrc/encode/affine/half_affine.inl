// Q4_1 and Q5_1: quant/formats/legacy_min.py, line by line.

template <class Layout>
struct HalfAffine : Layout {
    static constexpr int bits = Layout::bits;
    static constexpr int qmax = (1 << bits) - 1;
    static constexpr Trials fast{-3.0, 1.0, 8, 3, 2};
    static constexpr Trials best{-3.0, 0.5, 15, 5, 4};

    Int d, m;  // float16 bits
    Int q[32];

    template <bool weighted>
    static void encode(const Float* x, const Float* w, bool longer, Int* words) {
        Float clipped[32];
        for (int i = 0; i < 32; i++) clipped[i] = clamp(x[i], -65504.0f, 65504.0f);
        HalfAffine block;
        if (weighted || longer)
            block.least_squares<weighted>(clipped, w, longer ? best : fast);
        else
            block.min_max(clipped);
        block.pack(words);
    }

private:
    void min_max(const Float* x) {
        Float lowest = x[0], highest = x[0];
        for (int i = 1; i < 32; i++) {
            lowest = min(lowest, x[i]);
            highest = max(highest, x[i]);
        }
        const Float step = (highest - lowest) / splat(qmax);
        const Float inverse_step = inverse(step);
        for (int i = 0; i < 32; i++) q[i] = to_int(clamp((x[i] - lowest) * inverse_step + splat(0.5f), 0.0f, qmax));
        d = stored_half(step);
        m = stored_half(lowest);
    }

    template <bool weighted>
    void least_squares(const Float* x, const Float* w, const Trials& trials) {
        const AffineFit fit = fit_affine<weighted, false, 32>(x, w, qmax, trials);
        d = stored_half(fit.scale);
        const Float scale = half_value(d);
        m = stored_half((fit.sum_wy - scale * fit.sum_q) / fit.sum_w + fit.lowest);
        const Float minimum = half_value(m), factor = inverse(scale);
        for (int i = 0; i < 32; i++) q[i] = to_int(round(clamp((x[i] - minimum) * factor, 0.0f, qmax)));
    }

    void pack(Int* words) {
        *words++ = d | m << 16;
        if constexpr (bits == 5) {
            *words++ = pack_bits(q, 4);
            for (auto& code : q) code = code & splat_int(15);
        }
        pack_nibbles(q, words);
    }
};
