// Super-blocks with two levels of scales and no minima: quant/formats/k_linear.py.

template <class Levels, int num_runs, int scale_range, bool weighted>
struct KLinear {
    static constexpr int n = 256 / num_runs;

    Float* x;        // [256]
    const Float* w;  // [256], read where weighted
    Int d_bits;
    Float d;                 // exact in float16
    Float scales[num_runs];  // whole numbers in -scale_range..scale_range - 1
    Sums sums[num_runs];     // of the levels under these scales, for the d that they were chosen with

    KLinear(Float* x_, const Float* w_, const Search& search) : x(x_), w(w_) {
        saturate(x, 256, scale_range * Levels::reach);
        for (int run = 0; run < num_runs; run++)
            scales[run] = fit_scale<Levels, n, weighted>(x + run * n, w + run * n, search);
        store(signed_extreme_of(scales, num_runs) * splat(-1.0f / scale_range));
        const Float inverse_d = inverse(d);
        for (int run = 0; run < num_runs; run++) {
            scales[run] = round(clamp(scales[run] * inverse_d, -scale_range, scale_range - 1));
            sums[run] = sums_under(run, scales[run]);
        }
        refit();
        for (int i = 0; i < search.num_rounds; i++) {
            for (int run = 0; run < num_runs; run++) choose_neighbour(run);
            refit();
        }
    }

    // Factor of a run's weights before the nearest level is taken.
    Float per_scale(int run) const { return inverse(d * scales[run]); }

private:
    void store(Float value) {
        d_bits = stored_half(value);
        d = half_value(d_bits);
    }

    Sums sums_under(int run, Float scale) const {
        return sums_of<Levels, n, weighted>(x + run * n, w + run * n, inverse(d * scale));
    }

    // The scale of a run, or the whole number below or above it if that has less squared error.
    void choose_neighbour(int run) {
        const Float old = scales[run];
        sums[run] = sums_under(run, old);
        Float best_gain = gain_of(old, sums[run]);
        for (const float step : {-1.0f, 1.0f}) {
            const Float trial = clamp(old + splat(step), -scale_range, scale_range - 1);
            const Sums trial_sums = sums_under(run, trial);
            const Float gain = gain_of(trial, trial_sums);
            const Mask better = gain > best_gain;
            best_gain = select(better, gain, best_gain);
            scales[run] = select(better, trial, scales[run]);
            sums[run] = {select(better, trial_sums.vv, sums[run].vv), select(better, trial_sums.vx, sums[run].vx)};
        }
    }

    Float gain_of(Float whole_scale, Sums of) const {
        const Float scale = d * whole_scale;
        return scale * ((of.vx + of.vx) - scale * of.vv);
    }

    void refit() {
        Float aa = splat(0.0f), ax = splat(0.0f);
        for (int run = 0; run < num_runs; run++) {
            aa = aa + scales[run] * sums[run].vv * scales[run];
            ax = ax + scales[run] * sums[run].vx;
        }
        store(ax * inverse(aa));
    }
};
