// Butterflies, for every instruction set: first between the lanes of a register, then between registers.
#ifndef QK_TURN_LANES
#error "turn/kernels.inl: include turn/lanes_*.inl before this file"
#endif

namespace {

// Lane i's factor in the butterfly with lane i ^ half: the difference is the partner less the lane's own value.
template <int half>
inline Float own_factor() {
    static constexpr auto factors = [] {
        std::array<float, 16> all{};
        for (int i = 0; i < 16; i++) all[i] = i & half ? -1.0f : 1.0f;
        return all;
    }();
    return load(factors.data());
}

template <int half>
[[gnu::always_inline]] inline void turn_lanes(Float* v, int count) {
    if constexpr (half < width) {
        const Float factor = own_factor<half>();
        // A product with 1 or -1 is exact, so this is one sum or one difference.
        for (int i = 0; i < count; i++) v[i] = fma(v[i], factor, swapped<half>(v[i]));
        turn_lanes<2 * half>(v, count);
    }
}

template <int count>
[[gnu::always_inline]] inline void turn_registers(Float (&v)[count]) {
    for (int half = 1; half < count; half *= 2)
        for (int i = 0; i < count; i++) {
            if (i & half) continue;
            const Float a = v[i], b = v[i + half];
            v[i] = a + b, v[i + half] = a - b;
        }
}

template <int size>
constexpr float norm = size == 16   ? 0.25f
                       : size == 32 ? 0x1.6a09e6p-3f
                       : size == 64 ? 0.125f
                                    : 0x1.6a09e6p-4f;

template <int size, bool back>
[[gnu::always_inline]] inline void turn_run(float* values, const float* signs) {
    constexpr int count = size / width;
    Float v[count];
    for (int i = 0; i < count; i++) {
        v[i] = load(values + i * width);
        if constexpr (!back) v[i] = v[i] * load(signs + i * width);
    }
    turn_lanes<1>(v, count);
    turn_registers(v);
    for (int i = 0; i < count; i++) {
        v[i] = v[i] * splat(norm<size>);
        if constexpr (back) v[i] = v[i] * load(signs + i * width);
        store(values + i * width, v[i]);
    }
}

template <int size>
void turn_runs(float* values, int64_t count, bool back) {
    const float* signs = signs_of(size);
    for (int64_t i = 0; i < count; i++, values += size) {
        if (back)
            turn_run<size, true>(values, signs);
        else
            turn_run<size, false>(values, signs);
    }
}

}  // namespace

void rows(float* values, int64_t count, int size, bool back) {
    if (size == 128) return turn_runs<128>(values, count, back);
    if (size == 64) return turn_runs<64>(values, count, back);
    if (size == 32) return turn_runs<32>(values, count, back);
    return turn_runs<16>(values, count, back);
}

void outputs(const Outputs& out) {
    const float* signs = signs_of(16);
    for (int64_t token = 0; token < out.num_tokens; token++) {
        float* y = out.y + token * out.y_stride;
        const Float addend = splat(out.addend ? out.addend[token] : 0.0f);
        for (int64_t i = 0; i < out.num_panels * 16; i += 16) {
            for (int row = 0; row < 16; row += width)
                store(y + i + row, (load(y + i + row) + addend) * load(out.scale + i + row));
            turn_run<16, true>(y + i, signs);
        }
    }
}
