// A query as the kernels take it.
#ifndef QK_ATTENTION_FLOAT8
#error "attention/kernels/prepare.inl: include attention/float8_*.inl before this file"
#endif
#ifndef QK_ATTENTION_ROUNDING
#error "attention/kernels/prepare.inl: include attention/kernels/rounding.inl before this file"
#endif

void prepare(const Layout& layout, const float* q, float factor, const Queries& queries, int row) {
    const int64_t size = layout.head_dim, groups = layout.groups();
    float* values = queries.values + row * size;
    int16_t* codes = queries.codes + row * size;
    for (int64_t d = 0; d < size; d++) values[d] = q[d] * factor;
    if (is_float8(layout.format) && Float8<Format::e4m3, false>::is_dot)
        for (int64_t d = 0; d < size; d++) codes[d] = static_cast<int16_t>(to_bf16(values[d]));
    if (!is_integer(layout.format) || is_kivi(layout.format)) return;
    const float largest = absmax(values, size);
    const bool finite = largest <= std::numeric_limits<float>::max();
    const bool zero = !finite || largest < smallest_query;
    const float inverse = zero ? 0.0f : 32767.0f / largest;
    const float scale = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : largest / 32767.0f;
    for (int64_t d = 0; d < size; d++) codes[d] = static_cast<int16_t>(zero ? 0.0f : nearest(values[d] * inverse));
    queries.scale[row] = scale;
    for (int64_t g = 0; g < groups; g++) {
        int32_t sum = 0;
        for (int64_t d = g * size / groups; d < (g + 1) * size / groups; d++) sum += codes[d];
        queries.sums[row * groups + g] = scale * static_cast<float>(sum);
    }
}
