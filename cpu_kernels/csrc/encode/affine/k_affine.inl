// Super-blocks with small integer scales and minima: quant/formats/k_affine_fit.py, line by line.

struct Window { int scales, minima; };

// How long it looks, the same numbers as k_affine.KAffineSearch.
struct KAffineSearch {
    Trials trials;
    int num_windows;
    Window windows[2];
};

template <bool weighted, int qmax, int sub_size, int scale_max>
struct KAffine {
    static constexpr int num_subs = 256 / sub_size;

    const Float* w;
    Float x[256];  // clipped
    Float d, dmin;
    Float scales[num_subs], minima[num_subs];

    KAffine(const Float* weights, const Float* importance, const KAffineSearch& search) : w(importance) {
        constexpr float limit = static_cast<float>(scale_max) * 65504.0f;
        for (int i = 0; i < 256; i++) x[i] = clamp(weights[i], -limit, limit);
        AffineFit fits[num_subs];
        for (int sub = 0; sub < num_subs; sub++)
            fits[sub] = fit_affine<weighted, true, sub_size>(x_of(sub), w_of(sub), qmax, search.trials);
        round_fits(fits);
        refit();
        for (int i = 0; i < search.num_windows; i++) {
            for (int sub = 0; sub < num_subs; sub++) try_window(sub, search.windows[i]);
            refit();
        }
    }

    // Nearest codes of a sub-block, as integers.
    void codes(int sub, Int* q) const {
        const Float factor = inverse(d * scales[sub]), minimum = dmin * minima[sub];
        for (int i = 0; i < sub_size; i++) q[i] = to_int(code(x_of(sub)[i] + minimum, factor));
    }

private:
    const Float* x_of(int sub) const { return x + sub * sub_size; }
    const Float* w_of(int sub) const { return weighted ? w + sub * sub_size : nullptr; }

    static Float code(Float shifted, Float factor) {
        return round(clamp(shifted * factor, 0.0f, static_cast<float>(qmax)));
    }

    static Float stored(Float value) { return half_value(stored_half(value)); }

    void round_fits(const AffineFit* fits) {
        const Float largest = splat(static_cast<float>(scale_max)), zero = splat(0.0f), one = splat(1.0f);
        Float highest_scale = zero, highest_minimum = zero;
        for (int sub = 0; sub < num_subs; sub++) {
            highest_scale = max(highest_scale, fits[sub].scale);
            highest_minimum = max(highest_minimum, zero - (fits[sub].lowest + fits[sub].offset));
        }
        d = stored(highest_scale / largest);
        dmin = stored(highest_minimum / largest);
        const Float inverse_d = inverse(d), inverse_dmin = inverse(dmin);
        for (int sub = 0; sub < num_subs; sub++) {
            const AffineFit& fit = fits[sub];
            const Float exact = fit.scale * inverse_d;
            const Float nearest = round(min(exact, largest));
            const Float beside = select(exact > nearest, nearest + one, nearest - one);
            const Float second = clamp(beside, 0.0f, static_cast<float>(scale_max));
            Float nearest_minimum, second_minimum;
            const Float nearest_error = with_minimum(fit, nearest, inverse_dmin, nearest_minimum);
            const Float second_error = with_minimum(fit, second, inverse_dmin, second_minimum);
            const Mask better = second_error < nearest_error;
            scales[sub] = select(better, second, nearest);
            minima[sub] = select(better, second_minimum, nearest_minimum);
        }
    }

    Float with_minimum(const AffineFit& fit, Float scale_code, Float inverse_dmin, Float& minimum) const {
        const Float two = splat(2.0f);
        const Float scale = d * scale_code;
        const Float wanted = (scale * fit.sum_q - fit.sum_wy) / fit.sum_w - fit.lowest;
        minimum = round(clamp(wanted * inverse_dmin, 0.0f, static_cast<float>(scale_max)));
        const Float shift = dmin * minimum + fit.lowest;
        const Float error = scale * (scale * fit.sum_qq - two * fit.sum_qy - two * shift * fit.sum_q);
        return error + shift * (two * fit.sum_wy + shift * fit.sum_w);
    }

    Float error(int sub, Float scale_code, Float minimum_code) const {
        const Float scale = d * scale_code, minimum = dmin * minimum_code, factor = inverse(scale);
        Float sum = splat(0.0f);
        for (int i = 0; i < sub_size; i++) {
            const Float shifted = x_of(sub)[i] + minimum;
            const Float residual = scale * code(shifted, factor) - shifted;
            sum = sum + times_importance<weighted>(w_of(sub), i, residual) * residual;
        }
        return sum;
    }

    void try_window(int sub, const Window& window) {
        const Float start_scale = scales[sub], start_minimum = minima[sub];
        Float least = error(sub, start_scale, start_minimum);
        for (int i = -window.scales; i <= window.scales; i++) {
            for (int j = -window.minima; j <= window.minima; j++) {
                constexpr auto high = static_cast<float>(scale_max);
                const Float scale = clamp(start_scale + splat(static_cast<float>(i)), 0.0f, high);
                const Float minimum = clamp(start_minimum + splat(static_cast<float>(j)), 0.0f, high);
                const Float new_error = error(sub, scale, minimum);
                const Mask better = new_error < least;
                least = select(better, new_error, least);
                scales[sub] = select(better, scale, scales[sub]);
                minima[sub] = select(better, minimum, minima[sub]);
            }
        }
    }

    void refit() {
        const Float zero = splat(0.0f), one = splat(1.0f);
        Float aa = zero, ab = zero, bb = zero, ax = zero, bx = zero;
        for (int sub = 0; sub < num_subs; sub++) {
            const Float scale = scales[sub], minimum = minima[sub];
            const Float factor = inverse(d * scale), shift = dmin * minimum;
            Float sum_w = zero, sum_wx = zero, sum_q = zero, sum_qq = zero, sum_qx = zero;
            for (int i = 0; i < sub_size; i++) {
                const Float weight = x_of(sub)[i];
                const Float q = code(weight + shift, factor);
                const Float wq = times_importance<weighted>(w_of(sub), i, q);
                sum_w = sum_w + times_importance<weighted>(w_of(sub), i, one);
                sum_wx = sum_wx + times_importance<weighted>(w_of(sub), i, weight);
                sum_q = sum_q + wq;
                sum_qq = sum_qq + wq * q;
                sum_qx = sum_qx + wq * weight;
            }
            aa = aa + scale * scale * sum_qq;
            ab = ab + scale * minimum * sum_q;
            bb = bb + minimum * minimum * sum_w;
            ax = ax + scale * sum_qx;
            bx = bx + minimum * sum_wx;
        }
        const Float both = aa * bb;
        const Float determinant = both - ab * ab;
        Mask unique = determinant > splat(1e-3f) * both;
        const Float divisor = select(unique, determinant, one);
        const Float new_d = (ax * bb - bx * ab) / divisor, new_dmin = (ax * ab - bx * aa) / divisor;
        unique = unique & (new_d > zero) & (new_dmin > zero);
        const Float alone = (ax + dmin * ab) / select(aa > zero, aa, one);
        d = stored(select(unique, new_d, select(alone > zero, alone, d)));
        dmin = stored(select(unique, new_dmin, dmin));
    }
};
