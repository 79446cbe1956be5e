// Parts of a sequence, attended apart, to one output.
#ifndef QK_ATTENTION_ATTEND
#error "attention/combine.inl: include attention/attend.inl before this file"
#endif

void combine(const float* max_scores, const float* sums, int64_t stride, const float* partial, int64_t partial_stride,
             int64_t parts, float factor, int64_t head_dim, float* out) {
    float highest = lowest, total = 0;
    for (int64_t i = 0; i < parts; i++) highest = std::max(highest, max_scores[i * stride]);
    std::fill_n(out, head_dim, 0.0f);
    for (int64_t i = 0; i < parts; i++) {
        if (sums[i * stride] == 0) continue;  // no token seen
        float weight[width];
        store(weight, exp2(splat(max_scores[i * stride]) - splat(highest)));
        total += weight[0] * sums[i * stride];
        for (int64_t d = 0; d < head_dim; d += width)
            store(out + d, fma(load(partial + i * partial_stride + d), splat(weight[0]), load(out + d)));
    }
    if (total == 0) return;
    const Float scale = splat(factor / total);
    for (int64_t d = 0; d < head_dim; d += width) store(out + d, load(out + d) * scale);
}
