// The block product over the lanes of an instruction set. Include it where num_rows, num_vectors and this_isa are known.
#ifndef QK_GRAM_WORDS
#error "gram/kernels.inl: include simd/float_*.inl and gram/halves.inl, or define Words, before this file"
#endif

// num_rows x num_vectors sums in registers
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
