// Scores of rows over the lanes of an instruction set. Include it after simd/lanes_*.inl.
#ifndef QK_SIMD_HALF
#error "blocks/kernels.inl: include simd/lanes_*.inl before this file"
#endif

namespace {

constexpr int parts = lanes / width;
constexpr int tile =
    width < 4 ? width : 4;  // rows that share the loads of a vector: 4 x 2 sums of 16 registers of AVX2

// The processor's prefetching does not follow several rows that are read at once: from memory they came at a third of its
// rate.
constexpr int rows_ahead = 2 * width;
constexpr int64_t line = 32;  // values of 64 bytes

// Sums of `tile` rows, over the columns of each lane
inline void sum_rows(const uint16_t* const* rows, int64_t size, const float* vector, Float* sums) {
    Float sum[tile][parts];
    for (int i = 0; i < tile; i++)
        for (int p = 0; p < parts; p++) sum[i][p] = splat(0);
    for (int64_t c = 0; c < size; c += lanes)
        for (int p = 0; p < parts; p++) {
            const Float factor = load(vector + c + p * width);
            for (int i = 0; i < tile; i++) sum[i][p] = fma(load_f16(rows[i] + c + p * width), factor, sum[i][p]);
        }
    for (int i = 0; i < tile; i++) {
        for (int half = parts / 2; half > 0; half /= 2)
            for (int p = 0; p < half; p++) sum[i][p] = sum[i][p] + sum[i][p + half];
        sums[i] = sum[i][0];
    }
}

}  // namespace

Isa score(const uint16_t* rows, int64_t num_rows, int64_t size, const float* vector, float* scores) {
    const auto row = [=](int64_t i) { return rows + std::min(i, num_rows - 1) * size; };
    for (int64_t first = 0; first < num_rows; first += width) {
        const uint16_t* at[width];  // behind the last row that row again
        for (int i = 0; i < width; i++) at[i] = row(first + i);
        Float sums[width];
        for (int i = 0; i < width; i += tile) {
            for (int j = i; j < i + tile; j++)
                for (int64_t c = 0; c < size; c += line) __builtin_prefetch(row(first + j + rows_ahead) + c);
            sum_rows(at + i, size, vector, sums + i);
        }
        transpose(sums);
        for (int half = width / 2; half > 0; half /= 2)
            for (int i = 0; i < half; i++) sums[i] = sums[i] + sums[i + half];
        float found[width];
        store(found, sums[0]);
        for (int i = 0; i < width && first + i < num_rows; i++) scores[first + i] = found[i];
    }
    return this_isa;
}
