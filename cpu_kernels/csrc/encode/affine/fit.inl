// Least squares of a scale and an offset for n weights per lane: quant/formats/affine_fit.py, line by line.

// How long it looks, the same numbers as affine_fit.Trials.
struct Trials {
    double first_extra, extra_step;
    int num_extra, num_shifts, num_refits;
};

struct AffineFit { Float lowest, scale, offset, sum_w, sum_wy, sum_q, sum_qq, sum_qy; };

inline Float inverse_span(Float span) { return select(span >= splat(0x1p-60f), inverse(span), splat(0.0f)); }

template <bool weighted, int n>
struct AffineSearch {
    const Float* w;
    float qmax;
    Float max_offset;
    Float y[n];
    Float gain;
    AffineFit best;

    // Code i is round(clamp((y[i] - minus) * factor - shift)).
    void consider(Float minus, Float factor, Float shift) {
        Float sum_q = splat(0.0f), sum_qq = splat(0.0f), sum_qy = splat(0.0f);
        for (int i = 0; i < n; i++) {
            const Float q = round(clamp((y[i] - minus) * factor - shift, 0.0f, qmax));
            const Float wq = times_importance<weighted>(w, i, q);
            sum_q = sum_q + wq;
            sum_qq = sum_qq + wq * q;
            sum_qy = sum_qy + wq * y[i];
        }
        const Float zero = splat(0.0f), two = splat(2.0f);
        const Float both = best.sum_w * sum_qq;
        const Float determinant = both - sum_q * sum_q;
        const Mask free = determinant > splat(1e-5f) * both;
        const Float divisor = select(free, determinant, splat(1.0f));
        Float scale = (best.sum_w * sum_qy - best.sum_wy * sum_q) / divisor;
        Float offset = (sum_qq * best.sum_wy - sum_q * sum_qy) / divisor;
        offset = select(free, min(offset, max_offset), zero);
        const Float alone = (sum_qy - offset * sum_q) / max(sum_qq, splat(1e-30f));
        scale = max(select(free & (offset < max_offset), scale, alone), zero);

        const Float slope = two * sum_qy - scale * sum_qq - two * offset * sum_q;
        const Float new_gain = scale * slope + offset * (two * best.sum_wy - best.sum_w * offset);
        const Mask better = new_gain > gain;
        gain = select(better, new_gain, gain);
        best.scale = select(better, scale, best.scale);
        best.offset = select(better, offset, best.offset);
        best.sum_q = select(better, sum_q, best.sum_q);
        best.sum_qq = select(better, sum_qq, best.sum_qq);
        best.sum_qy = select(better, sum_qy, best.sum_qy);
    }
};

template <bool weighted, bool bounded, int n>
AffineFit fit_affine(const Float* x, const Float* w, int qmax, const Trials& trials) {
    const Float zero = splat(0.0f);
    Float lowest = x[0], highest = x[0];
    for (int i = 1; i < n; i++) {
        lowest = min(lowest, x[i]);
        highest = max(highest, x[i]);
    }
    if constexpr (bounded) lowest = min(lowest, zero);
    AffineSearch<weighted, n> search;
    search.w = w;
    search.qmax = static_cast<float>(qmax);
    search.max_offset = bounded ? zero - lowest : splat(3e38f);
    search.gain = splat(-1.0f);
    search.best = {lowest, zero, zero, zero, zero, zero, zero, zero};
    for (int i = 0; i < n; i++) {
        search.y[i] = x[i] - lowest;
        search.best.sum_w = search.best.sum_w + times_importance<weighted>(w, i, splat(1.0f));
        search.best.sum_wy = search.best.sum_wy + times_importance<weighted>(w, i, search.y[i]);
    }
    const Float per_span = inverse_span(highest - lowest);
    for (int i = 0; i < trials.num_extra; i++) {
        const double extra = trials.first_extra + i * trials.extra_step;
        const Float factor = splat(static_cast<float>(qmax + extra)) * per_span;
        for (int j = 0; j < trials.num_shifts; j++) search.consider(zero, factor, splat(0.5f * static_cast<float>(j)));
    }
    for (int i = 0; i < trials.num_refits; i++)
        search.consider(search.best.offset, inverse_span(search.best.scale), zero);
    return search.best;
}
