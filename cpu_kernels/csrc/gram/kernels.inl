// The block product over the lanes of an instruction set. Include it after simd/lanes_*.inl, or after lanes with Words
// of their own.
#ifndef QK_SIMD_FLOAT
#error "gram/kernels.inl: include simd/lanes_*.inl before this file"
#endif

#ifndef QK_GRAM_WORDS
namespace {
#include "gram/halves.inl"
}  // namespace
#endif

// num_rows x num_vectors sums in registers
//     AVX2          8 sums, 4 halves of words, 2 of a row: 14 of 16
//     AVX-512      16 sums, 8 halves of words, 2 of a row: 26 of 32
//     with BF16    16 sums, chains with a latency of 6 x 1 per cycle: 21 of 32
constexpr int num_rows = 4, num_vectors = this_isa == Isa::avx2 ? 2 : 4;

inline void add_tile(const uint32_t* left, const uint32_t* right, int64_t num_pairs, float* sums) {
    Float sum[num_rows][num_vectors];
    for (int r = 0; r < num_rows; r++)
        for (int v = 0; v < num_vectors; v++) sum[r][v] = load(sums + r * panel + v * width);
    for (int64_t p = 0; p < num_pairs; p++) {
        Words words[num_vectors];
        for (int v = 0; v < num_vectors; v++) words[v] = load_words(right + p * panel + v * width);
        for (int r = 0; r < num_rows; r++) {
            const Words row = splat_word(left[p * panel + r]);
            for (int v = 0; v < num_vectors; v++) sum[r][v] = multiply_add(sum[r][v], row, words[v]);
        }
    }
    for (int r = 0; r < num_rows; r++)
        for (int v = 0; v < num_vectors; v++) store(sums + r * panel + v * width, sum[r][v]);
}

Isa add_block(const uint32_t* left, const uint32_t* right, int64_t num_pairs, float* sums) {
    for (int64_t begin = 0; begin < num_pairs; begin += pairs_at_once) {
        const int64_t pairs = num_pairs - begin < pairs_at_once ? num_pairs - begin : pairs_at_once;
        for (int r = 0; r < panel; r += num_rows)
            for (int c = 0; c < panel; c += num_vectors * width)
                add_tile(left + begin * panel + r, right + begin * panel + c, pairs, sums + r * panel + c);
    }
    return this_isa;
}
