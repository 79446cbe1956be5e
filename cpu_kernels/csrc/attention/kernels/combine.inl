// Parts of a sequence, attended apart, to one output; weights of heads to the mass of their keys.
#ifndef QK_ATTENTION_ATTEND
#error "attention/kernels/combine.inl: include attention/kernels/attend.inl before this file"
#endif

Softmax combine(const float* max_scores, const float* sums, int64_t stride, const float* partial,
                int64_t partial_stride, int64_t parts, float factor, int64_t head_dim, float* out) {
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
    if (total == 0) return {highest, total};
    const Float scale = splat(factor / total);
    for (int64_t d = 0; d < head_dim; d += width) store(out + d, load(out + d) * scale);
    return {highest, total};
}

void sum_heads(const float* weights, const float* chunk_max, const Softmax* totals, int64_t heads, int64_t begin,
               int64_t end, float* sums) {
    begin = begin / width * width;
    for (int64_t t = begin; t < end; t += width) store(sums + t, splat(0.0f));
    for (int64_t h = 0; h < heads; h++) {
        const Float factor = exp2(splat(chunk_max[h]) - splat(totals[h].max)) * splat(1.0f / totals[h].sum);
        for (int64_t t = begin; t < end; t += width)
            store(sums + t, fma(load(weights + h * chunk_tokens + t), factor, load(sums + t)));
    }
}
