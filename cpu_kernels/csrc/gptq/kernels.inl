// The kernels over the lanes of an instruction set. Include it after simd/lanes_*.inl.
#ifndef QK_SIMD_FLOAT
#error "gptq/kernels.inl: include simd/lanes_*.inl before this file"
#endif

// AVX2: 8 sums, 2 vectors, 1 coefficient: 11 of 16 registers. AVX-512: 16 sums, 4 vectors, 1 coefficient: 21 of 32.
constexpr int num_vectors = this_isa == Isa::avx2 ? 2 : 4;

// `columns` sums of num_vectors registers each: 16 chains of multiply-adds, latency 4 x 2 a cycle and some to spare.
template <int columns>
inline void subtract_columns(const float* lanes, const float* coefficients, int64_t stride, int64_t depth, float* out) {
    for (int lane = 0; lane < tile; lane += num_vectors * width) {
        Float sum[columns][num_vectors];
        for (auto& column : sum)
            for (auto& value : column) value = splat(0.0f);
        for (int64_t d = 0; d < depth; d++) {
            Float x[num_vectors];
            for (int v = 0; v < num_vectors; v++) x[v] = load(lanes + d * tile + lane + v * width);
            for (int c = 0; c < columns; c++) {
                const Float coefficient = splat(coefficients[d * stride + c]);
                for (int v = 0; v < num_vectors; v++) sum[c][v] = fma(coefficient, x[v], sum[c][v]);
            }
        }
        for (int c = 0; c < columns; c++)
            for (int v = 0; v < num_vectors; v++) {
                float* to = out + c * tile + lane + v * width;
                store(to, load(to) - sum[c][v]);
            }
    }
}

void subtract(const float* lanes, const float* coefficients, int64_t stride, int64_t depth, int64_t columns,
              float* out) {
    int64_t c = 0;
    for (; c + 4 <= columns; c += 4) subtract_columns<4>(lanes, coefficients + c, stride, depth, out + c * tile);
    for (; c < columns; c++) subtract_columns<1>(lanes, coefficients + c, stride, depth, out + c * tile);
}

Isa round(const float* target, const float* weight, const ColumnGrid& grid, float* q, float* error) {
    const Float qmin = splat(grid.qmin), qmax = splat(grid.qmax);
    for (int lane = 0; lane < tile; lane += width) {
        const Float scale = load(grid.scale + lane), offset = load(grid.offset + lane);
        const Mask flat = scale == splat(0.0f);
        const Float steps = (load(target + lane) - offset) / select(flat, splat(1.0f), scale);
        const Float code = min(max(round(select(flat, splat(0.0f), steps)), qmin), qmax);
        store(q + lane, code);
        store(error + lane, (scale * code + offset) - load(weight + lane));
    }
    return this_isa;
}

void grid_error(const float* values, const float* cost, int64_t columns, const float* scale, const float* lowest,
                float steps, float* error) {
    for (int lane = 0; lane < tile; lane += width) {
        const Float step = load(scale + lane), per_step = splat(1.0f) / step;
        const Float first = load(lowest + lane), last = first + splat(steps);
        Float sum = splat(0.0f);
        for (int64_t c = 0; c < columns; c++) {
            const Float value = load(values + c * tile + lane) * per_step;
            const Float off = value - min(max(round(value), first), last);
            sum = fma(off * off, splat(cost[c]), sum);
        }
        store(error + lane, sum * step * step);
    }
}
