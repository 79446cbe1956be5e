// y = x times a panel, over the lanes of an instruction set, which is this_isa.
#ifndef QK_SIMD_HALF
#error "mla/multiply.inl: include simd/half_*.inl before this file"
#endif

namespace {

struct ReadF32 {
    static Float at(const std::byte* row, int64_t column) { return load(reinterpret_cast<const float*>(row) + column); }
};
struct ReadF16 {
    static Float at(const std::byte* row, int64_t column) {
        return load_f16(reinterpret_cast<const uint16_t*>(row) + column);
    }
};
struct ReadBf16 {
    static Float at(const std::byte* row, int64_t column) {
        return load_bf16(reinterpret_cast<const uint16_t*>(row) + column);
    }
};

struct ReadInt8 {
    static Float at(const std::byte* row, int64_t column) {
        return load_bytes(reinterpret_cast<const int8_t*>(row) + column);
    }
};

constexpr int step = width > 1 ? panel_columns / width : 4;  // registers of a row; of one lane: four channels at a time

template <int tokens>
struct Sums {
    Float of[tokens][step];

    Sums() {
        for (auto& row : of)
            for (auto& value : row) value = splat(0.0f);
    }
};

// Sums of a tile: `tokens` times `step` registers; one more holds a register of weights.
template <class Read, int tokens>
inline Sums<tokens> sum_products(const std::byte* weights, int64_t row_bytes, int64_t column, int64_t inputs,
                                 const float* x, int64_t x_stride) {
    Sums<tokens> sum;
    for (int64_t k = 0; k < inputs; k++, weights += row_bytes) {
        Float input[tokens];
        for (int t = 0; t < tokens; t++) input[t] = splat(x[t * x_stride + k]);
        for (int v = 0; v < step; v++) {
            const Float weight = Read::at(weights, column + v * width);
            for (int t = 0; t < tokens; t++) sum.of[t][v] = fma(weight, input[t], sum.of[t][v]);
        }
    }
    return sum;
}

template <class Read, int tokens>
inline void multiply_tile(const Panel& panel, const float* x, int64_t x_stride, float* y, int64_t y_stride) {
    const int64_t row_bytes = item_bytes(panel.format) * panel_columns, groups = groups_of(panel.format, panel.inputs);
    for (int64_t column = 0; column < panel_columns; column += step * width) {
        Sums<tokens> total;
        if (groups == 0)
            total = sum_products<Read, tokens>(panel.weights(), row_bytes, column, panel.inputs, x, x_stride);
        for (int64_t g = 0; g < groups; g++) {
            const int64_t first = g * group_inputs, inputs = std::min(group_inputs, panel.inputs - first);
            const auto sum = sum_products<Read, tokens>(panel.weights() + first * row_bytes, row_bytes, column, inputs,
                                                        x + first, x_stride);
            for (int v = 0; v < step; v++) {
                const Float scale = load(panel.scales() + g * panel_columns + column + v * width);
                for (int t = 0; t < tokens; t++) total.of[t][v] = fma(sum.of[t][v], scale, total.of[t][v]);
            }
        }
        for (int t = 0; t < tokens; t++)
            for (int v = 0; v < step; v++) store(y + t * y_stride + column + v * width, total.of[t][v]);
    }
}

template <class Read>
inline void multiply_all(const Panel& panel, const Product& product) {
    constexpr int tile = width == 16 ? 4 : 1;  // 16 of 32 registers; 8 of 16 are one token's
    int64_t t = 0;
    for (; t + tile <= product.tokens; t += tile)
        multiply_tile<Read, tile>(panel, product.x + t * product.x_stride, product.x_stride,
                                  product.y + t * product.y_stride, product.y_stride);
    for (; t < product.tokens; t++)
        multiply_tile<Read, 1>(panel, product.x + t * product.x_stride, product.x_stride,
                               product.y + t * product.y_stride, product.y_stride);
}

}  // namespace

Isa multiply(const Panel& panel, const Product& product) {
    switch (panel.format) {
        case Format::f32: multiply_all<ReadF32>(panel, product); break;
        case Format::f16: multiply_all<ReadF16>(panel, product); break;
        case Format::bf16: multiply_all<ReadBf16>(panel, product); break;
        case Format::int8: multiply_all<ReadInt8>(panel, product); break;
    }
    return this_isa;
}
