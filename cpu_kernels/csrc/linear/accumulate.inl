// From the integer sums of a step to the outputs of one token: the same operations on every path, in the same order,
// so that neither the path nor the other tokens change the result. block.h has the formulas.

inline int32_t four_codes(const ActivationBlock& x, int group) {
    int32_t four;
    std::memcpy(&four, x.codes + group * 4, 4);
    return four;
}

inline Floats add_step(Ints sum, Floats scale, const ActivationBlock& x, Floats y) {
    return multiply_add(to_floats(sum), scale * splat(x.scale), y);
}

inline Floats add_halves(const Ints* sum, const Floats* scale, const ActivationBlock& x, Floats y) {
    const Floats both = multiply_add(to_floats(sum[1]), scale[1], to_floats(sum[0]) * scale[0]);
    return multiply_add(both, splat(x.scale), y);
}

template <Sums sums>
inline Floats add_minimum(const Floats* minimum, const ActivationBlock& x, Floats y) {
    if constexpr (sums == Sums::step_half_minima) {
        y = multiply_add(minimum[0], splat(x.scaled_sum_half[0]), y);
        return multiply_add(minimum[1], splat(x.scaled_sum_half[1]), y);
    } else {
        return multiply_add(minimum[0], splat(x.scaled_sum), y);
    }
}

// A step to y, or to a span, whose scale comes later. sum, scale, minimum: as many as the step has
template <Sums sums>
inline void add_sums(const Ints* sum, const Floats* scale, const Floats* minimum, const ActivationBlock& x, Floats& y,
                     Floats& span) {
    if constexpr (is_span(sums)) {
        span = multiply_add(to_floats(*sum), splat(x.scale), span);
        if constexpr (sums == Sums::span_zero) span = add_minimum<sums>(minimum, x, span);
    } else {
        if constexpr (minima_per_step(sums) != 0) y = add_minimum<sums>(minimum, x, y);
        if constexpr (scales_per_step(sums) == 2)
            y = add_halves(sum, scale, x, y);
        else
            y = add_step(*sum, *scale, x, y);
    }
}
