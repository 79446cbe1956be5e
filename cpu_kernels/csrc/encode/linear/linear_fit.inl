// Least squares of one scale for a run of weights: quant/formats/linear_fit.py.

// `count` targets evenly spaced over centre +- reach.
struct Targets {
    double centre, reach;
    int count;

    constexpr float operator[](int i) const { return static_cast<float>(centre - reach + 2 * reach * i / (count - 1)); }
};

constexpr Targets iq4_low_fast{-128, 24, 9}, iq4_high_fast{116, 20, 6};  // of IQ4_NL and IQ4_XS
constexpr Targets iq4_low_best{-130, 30, 25}, iq4_high_best{117.5, 22.5, 19};

struct Search {
    Targets low, high;  // about the lowest level; about the highest, in codebooks (else count 0)
    int num_refits, num_rounds;
};

struct Sums {
    Float vv, vx;  // sum of v^2 and of v * x, weighted by importance
};

// Over the levels v nearest to x * per_scale.
template <class Levels, int n, bool weighted>
inline Sums sums_of(const Float* x, const Float* w, Float per_scale) {
    Sums sums{splat(0.0f), splat(0.0f)};
    for (int i = 0; i < n; i++) {
        const Float v = Levels::nearest(x[i] * per_scale);
        const Float wv = times_importance<weighted>(w, i, v);
        sums.vv = sums.vv + wv * v;
        sums.vx = sums.vx + wv * x[i];
    }
    return sums;
}

// The one of larger magnitude, the lowest if both are equal.
inline Float signed_extreme(Float highest, Float lowest) {
    return select(highest > splat(0.0f) - lowest, highest, lowest);
}

inline Float signed_extreme_of(const Float* x, int n) {
    Float highest = x[0], lowest = x[0];
    for (int i = 1; i < n; i++) {
        highest = max(highest, x[i]);
        lowest = min(lowest, x[i]);
    }
    return signed_extreme(highest, lowest);
}

struct Best {
    Float scale = splat(0.0f), gain = splat(0.0f);

    void consider(Sums sums) {
        const Float trial = sums.vx * inverse(sums.vv);
        const Float trial_gain = trial * sums.vx;
        const Mask better = trial_gain > gain;
        gain = select(better, trial_gain, gain);
        scale = select(better, trial, scale);
    }
};

// Scale of x ~= scale * level; 0 if nothing is better than all zeros.
template <class Levels, int n, bool weighted>
inline Float fit_scale(const Float* x, const Float* w, const Search& search) {
    const Float extreme = signed_extreme_of(x, n);
    // Runs below are all zeros to a float16 scale; the inverse of less, times a target, may be infinite.
    const Float per_extreme = inverse(select(abs(extreme) >= splat(0x1p-100f), extreme, splat(0.0f)));
    Best best;
    for (const auto& targets : {search.low, search.high})
        for (int i = 0; i < targets.count; i++)
            best.consider(sums_of<Levels, n, weighted>(x, w, splat(targets[i]) * per_extreme));
    for (int i = 0; i < search.num_refits; i++) best.consider(sums_of<Levels, n, weighted>(x, w, inverse(best.scale)));
    return best.scale;
}

// Weights clipped to the largest float16 scale times `reach`.
inline void saturate(Float* x, int n, float reach) {
    for (int i = 0; i < n; i++) x[i] = clamp(x[i], -reach * 65504.0f, reach * 65504.0f);
}

// One float16 scale a block of 32; its bits, and the codes of the levels nearest to the weights.
template <class Levels, bool weighted>
inline Int fit_block(Float* x, const Float* w, const Search& search, Int* q) {
    saturate(x, 32, Levels::reach);
    const Int d = stored_half(fit_scale<Levels, 32, weighted>(x, w, search));
    const Float per_scale = inverse(half_value(d));
    for (int i = 0; i < 32; i++) q[i] = Levels::code(x[i] * per_scale);
    return d;
}
