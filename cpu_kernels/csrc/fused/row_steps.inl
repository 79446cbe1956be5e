// The row steps over the lanes of an instruction set; no sum's order depends on their number.
#ifndef QK_SIMD_INT
#error "fused/row_steps.inl: include simd/lanes_*.inl before this file"
#endif

namespace {

#include "simd/silu.inl"

// Sums of squares side by side: an addition takes 4 cycles and one register of 16 starts each, so four keep it busy.
constexpr int num_sums = 64;

inline float sum_of_squares(const float* x, int64_t size) {
    alignas(64) float sums[num_sums] = {}, tail[num_sums] = {};
    constexpr int vectors = num_sums / width;
    Float sum[vectors];
    for (auto& lanes : sum) lanes = splat(0);
    const auto add = [&sum](const float* from) {
        for (int i = 0; i < vectors; i++) {
            const Float value = load(from + i * width);
            sum[i] = sum[i] + value * value;
        }
    };
    int64_t k = 0;
    for (; k + num_sums <= size; k += num_sums) add(x + k);
    if (k < size) {
        std::memcpy(tail, x + k, sizeof(float) * static_cast<size_t>(size - k));
        add(tail);  // zeros add nothing
    }
    for (int i = 0; i < vectors; i++) store(sums + i * width, sum[i]);
    for (int half = num_sums / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) sums[i] += sums[i + half];
    return sums[0];
}

// out = step(a, b) for a whole row; the rest after its whole vectors passes through arrays of one vector.
template <class Step>
inline void for_each_vector(const float* a, const float* b, int64_t size, float* out, const Step& step) {
    int64_t k = 0;
    for (; k + width <= size; k += width) store(out + k, step(load(a + k), load(b + k)));
    if (k == size) return;
    alignas(64) float edge_a[width] = {}, edge_b[width] = {};
    const size_t edge_bytes = sizeof(float) * static_cast<size_t>(size - k);
    std::memcpy(edge_a, a + k, edge_bytes);
    std::memcpy(edge_b, b + k, edge_bytes);
    store(edge_a, step(load(edge_a), load(edge_b)));
    std::memcpy(out + k, edge_a, edge_bytes);
}

}  // namespace

Isa rms_norm(const float* x, const float* weight, float eps, int64_t size, float* out) {
    const Float inverse = splat(1.0f / std::sqrt(sum_of_squares(x, size) / static_cast<float>(size) + eps));
    for_each_vector(x, weight, size, out, [inverse](Float value, Float w) { return value * inverse * w; });
    return this_isa;
}

Isa silu_mul(const float* gate, const float* up, int64_t size, float* out) {
    for_each_vector(gate, up, size, out, [](Float g, Float u) { return silu_mul(g, u); });
    return this_isa;
}
