// The kernels over the lanes of an instruction set: `width` weights of a row at a time, the last ones in a copy that is
// filled up. Include it after simd/lanes_*.inl.
#ifndef QK_SIMD_HALF
#error "group_quant/kernels.inl: include simd/lanes_*.inl before this file"
#endif

namespace {

// x[i .. i + width), and x[0] in place of elements behind the end: it changes no minimum and no maximum.
inline Float load_some(const float* x, int64_t i, int64_t count) {
    if (i + width <= count) return load(x + i);
    float some[width];
    for (int lane = 0; lane < width; lane++) some[lane] = x[i + lane < count ? i + lane : 0];
    return load(some);
}

template <class Reduce>
inline float reduce(Float value, const Reduce& of_two) {
    float lanes[width];
    store(lanes, value);
    float all = lanes[0];
    for (int lane = 1; lane < width; lane++) all = of_two(all, lanes[lane]);
    return all;
}

inline Grid fit_grid(const float* x, int64_t count, int qmin, int qmax, bool symmetric) {
    Float low = splat(0.0f), high = splat(0.0f);
    for (int64_t i = 0; i < count; i += width) {
        const Float some = load_some(x, i, count);
        low = min(low, some);
        high = max(high, some);
    }
    const float lowest = reduce(low, [](float a, float b) { return a < b ? a : b; });
    const float highest = reduce(high, [](float a, float b) { return a > b ? a : b; });
    const auto steps = static_cast<float>(qmax - qmin);
    // Each end is divided before they are added: the span may be infinite.
    const float spanned =
        symmetric ? (-lowest > highest ? -lowest : highest) / (steps / 2) : highest / steps - lowest / steps;
    constexpr float smallest_scale = 0x1p-24f, largest_half = 65504.0f;
    const float scale = half_to_float(float_to_half(spanned < smallest_scale ? smallest_scale
                                                    : spanned > largest_half ? largest_half
                                                                             : spanned));
    if (symmetric) return {scale, 0};
    const float zero_point = std::nearbyint(static_cast<float>(qmin) - lowest / scale);
    return {scale, static_cast<int>(zero_point < qmin ? qmin : zero_point > qmax ? qmax : zero_point)};
}

inline void round_to_grid(const float* x, int64_t count, const Grid& grid, int qmin, int qmax, int8_t* out) {
    const Float scale = splat(grid.scale), zero_point = splat(static_cast<float>(grid.zero_point));
    const Float least = splat(static_cast<float>(qmin)), most = splat(static_cast<float>(qmax));
    for (int64_t i = 0; i < count; i += width) {
        const Float q = min(max(round(load_some(x, i, count) / scale) + zero_point, least), most);
        store_bytes(out + i, to_int(q), static_cast<int>(count - i < width ? count - i : width));
    }
}

inline void restore_from_grid(const int8_t* q, int64_t count, const Grid& grid, float* out) {
    const Float scale = splat(grid.scale), zero_point = splat(static_cast<float>(grid.zero_point));
    int64_t i = 0;
    for (; i + width <= count; i += width) store(out + i, scale * (load_bytes(q + i) - zero_point));
    for (; i < count; i++) out[i] = grid.scale * static_cast<float>(q[i] - grid.zero_point);
}

inline void restore_from_grids(const int8_t* q, int64_t count, const float* scale, const float* zero_point,
                               float* out) {
    int64_t i = 0;
    for (; i + width <= count; i += width) store(out + i, load(scale + i) * (load_bytes(q + i) - load(zero_point + i)));
    for (; i < count; i++) out[i] = scale[i] * (static_cast<float>(q[i]) - zero_point[i]);
}

inline float largest_magnitude(const float* x, int64_t count) {
    Float most = splat(0.0f), nan = splat(0.0f);
    for (int64_t i = 0; i < count; i += width) {
        const Float some = load_some(x, i, count);
        most = max(most, abs(some));
        nan = nan + some * splat(0.0f);  // NaN, once there is one or an infinity
    }
    const float lost = reduce(nan, [](float a, float b) { return a + b; });
    return lost == 0 ? reduce(most, [](float a, float b) { return a > b ? a : b; }) : lost;
}

inline void nearest_halves(const float* x, int64_t count, float* out) {
    int64_t i = 0;
    for (; i + width <= count; i += width) store(out + i, half_value(half_bits(load(x + i))));
    for (; i < count; i++) out[i] = half_to_float(float_to_half(x[i]));
}

inline void round_times(const float* x, int64_t count, float factor, int8_t* out) {
    for (int64_t i = 0; i < count; i += width) {
        const Float q = round(load_some(x, i, count) * splat(factor));
        store_bytes(out + i, to_int(q), static_cast<int>(count - i < width ? count - i : width));
    }
}

}  // namespace

// ---- as group_quant.h declares them

Grid fit(const float* x, int64_t count, int qmin, int qmax, bool symmetric) {
    return fit_grid(x, count, qmin, qmax, symmetric);
}
Isa round(const float* x, int64_t count, const Grid& grid, int qmin, int qmax, int8_t* out) {
    round_to_grid(x, count, grid, qmin, qmax, out);
    return this_isa;
}
Isa restore(const int8_t* q, int64_t count, const Grid& grid, float* out) {
    restore_from_grid(q, count, grid, out);
    return this_isa;
}
Isa restore_each(const int8_t* q, int64_t count, const float* scale, const float* zero_point, float* out) {
    restore_from_grids(q, count, scale, zero_point, out);
    return this_isa;
}
float absmax(const float* x, int64_t count) { return largest_magnitude(x, count); }
void to_halves(const float* x, int64_t count, float* out) { nearest_halves(x, count, out); }
Isa round_product(const float* x, int64_t count, float factor, int8_t* out) {
    round_times(x, count, factor, out);
    return this_isa;
}
