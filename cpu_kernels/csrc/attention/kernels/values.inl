// Sums of weights times values.
#ifndef QK_ATTENTION_ATTEND
#error "attention/kernels/values.inl: attention/kernels/attend.inl includes this file"
#endif

// ---- values that are read as floats

// out[r][d ..] += weights of tokens [begin, end) times their values, for `vecs` registers of channels
template <class Code, int rows, int vecs>
inline void sum_values(const Layout& layout, const Chunk& chunk, const float* weights, int begin, int end, int64_t d,
                       const Block* ahead, float* out) {
    Float sum[rows][vecs];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vecs; v++) sum[r][v] = load(out + r * layout.head_dim + d + v * width);
    for (int t = begin / Code::elements * Code::elements; t < end; t += Code::elements) {
        const std::byte* codes = chunk.values[t / block_tokens].codes;
        const int64_t lane = t % block_tokens / Code::elements * layout.head_dim + d;
        for (int v = 0; v < vecs; v++) {
            Float value[Code::elements];
            Code::unpack(Code::raw(codes, lane + v * width), value);
            fetch<Code>(ahead[t / block_tokens], lane + v * width);
            for (int e = 0; e < Code::elements; e++) {
                if (Code::elements > 1 && (t + e < begin || t + e >= end)) continue;
                for (int r = 0; r < rows; r++)
                    sum[r][v] = fma(value[e], splat(weights[r * chunk_tokens + t + e]), sum[r][v]);
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vecs; v++) store(out + r * layout.head_dim + d + v * width, sum[r][v]);
}

template <class Code, int rows, int vecs>
inline void sum_channels(const Layout& layout, const Chunk& chunk, const float* weights, int begin, int end, int64_t d,
                         const Block* ahead, float* out) {
    for (; d + vecs * width <= layout.head_dim; d += vecs * width)
        sum_values<Code, rows, vecs>(layout, chunk, weights, begin, end, d, ahead, out);
    if constexpr (vecs * width > channel_step)
        sum_channels<Code, rows, vecs / 2>(layout, chunk, weights, begin, end, d, ahead, out);
}

// The rows of a tile from `first` on. Not inlined: every height of a tile calls that of one row twice, and copies of it
// made up a third of the code.
template <class Code, int rows>
[[gnu::noinline]] void sum_rows(const Layout& layout, const Chunk& chunk, const Tile& tile, int first, int begin,
                                int end, const Block* ahead, float* out) {
    if (begin >= end) return;
    constexpr int vecs = tile_vecs<Code, rows>;
    sum_channels<Code, rows, vecs>(layout, chunk, tile.scores[first], begin, end, 0, ahead,
                                   out + first * layout.head_dim);
}

// Every row in the order of its tokens: tokens before those that all rows see, these, and the rest.
template <class Code, int rows>
inline void sum_tile(const Layout& layout, const Chunk& chunk, int count, const Tile& tile, const Block* ahead,
                     float* out) {
    int begin = 0, end = chunk_tokens;
    for (int r = 0; r < count; r++) begin = std::max(begin, tile.seen[r].begin), end = std::min(end, tile.seen[r].end);
    end = std::max(begin, end);
    for (int r = 0; r < count; r++)
        sum_rows<Code, 1>(layout, chunk, tile, r, tile.seen[r].begin, std::min(begin, tile.seen[r].end), ahead, out);
    sum_rows<Code, rows>(layout, chunk, tile, 0, begin, end, ahead, out);
    for (int r = 0; r < count; r++)
        sum_rows<Code, 1>(layout, chunk, tile, r, std::max(end, tile.seen[r].begin), tile.seen[r].end, ahead, out);
}

// The sums before this chunk, scaled down as the maximum rose.
inline void correct(const Layout& layout, float correction, float* out) {
    for (int64_t d = 0; d < layout.head_dim; d += width) store(out + d, load(out + d) * splat(correction));
}

// ---- values that are multiplied as pairs

// Rows `first`.. of a tile, tokens of `tokens`, `vecs` registers of channels of group g. Lanes of which a token is not
// among them are looked at all the same, with weights of 0; so where codes may be NaN those bytes are cleared.
template <class Code, int rows, int vecs>
inline void sum_words(const Layout& layout, const Chunk& chunk, const Tile& tile, int first, Seen tokens, int64_t g,
                      int64_t d, const Block* ahead, float* out) {
    const int16_t* codes = tile.codes[g][first];
    typename Code::Sum sum[rows][vecs];
    for (auto& row : sum)
        for (auto& value : row) value = Code::zero();
    for (int t = tokens.begin / Code::elements * Code::elements; t < tokens.end; t += Code::elements) {
        const int64_t lane = t % block_tokens / Code::elements * layout.head_dim + d;
        const std::byte* from = chunk.values[t / block_tokens].codes + lane * lane_bytes;
        Int words[vecs][Code::elements / 2];
        for (int v = 0; v < vecs; v++) {
            Int raw = load_int(from + v * width * lane_bytes);
            if constexpr (Code::has_nan) raw = Code::keep(raw, tokens.begin - t, tokens.end - t);
            Code::words(raw, words[v]);
            fetch<Code>(ahead[t / block_tokens], lane + v * width);
        }
        for (int p = 0; p < Code::elements / 2; p++)
            for (int r = 0; r < rows; r++)
                for (int v = 0; v < vecs; v++)
                    sum[r][v] = Code::dot(sum[r][v], words[v][p], splat_pair(codes + r * chunk_tokens + t + 2 * p));
    }
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < vecs; v++) {
            float* to = out + r * layout.head_dim + d + v * width;
            const Float before = load(to), correction = splat(tile.correction[first + r]);
            if constexpr (is_integer(Code::format)) {
                const Float base = fma(before, correction, splat(tile.base[g][first + r]));
                store(to, fma(to_float(sum[r][v]), splat(tile.step[g][first + r]), base));
            } else {
                store(to, fma(before, correction, sum[r][v]));
            }
        }
    }
}

template <class Code, int rows, int vecs>
inline void sum_word_channels(const Layout& layout, const Chunk& chunk, const Tile& tile, int first, Seen tokens,
                              int64_t g, int64_t d, int64_t d_end, const Block* ahead, float* out) {
    for (; d + vecs * width <= d_end; d += vecs * width)
        sum_words<Code, rows, vecs>(layout, chunk, tile, first, tokens, g, d, ahead, out);
    if constexpr (vecs * width > channel_step)
        sum_word_channels<Code, rows, vecs / 2>(layout, chunk, tile, first, tokens, g, d, d_end, ahead, out);
}

template <class Code, int rows>
inline void sum_word_rows(const Layout& layout, const Chunk& chunk, const Tile& tile, int first, Seen tokens,
                          const Block* ahead, float* out) {
    constexpr int vecs = tile_vecs<Code, rows>;
    const int64_t groups = std::max<int64_t>(1, layout.groups()), size = layout.head_dim / groups;
    for (int64_t g = 0; g < groups; g++)
        sum_word_channels<Code, rows, vecs>(layout, chunk, tile, first, tokens, g, g * size, (g + 1) * size, ahead,
                                            out + first * layout.head_dim);
}

template <class Code, int rows>
inline void sum_word_tile(const Layout& layout, const Chunk& chunk, int count, Seen any, const Tile& tile,
                          const Block* ahead, float* out) {
    bool alike = true;
    for (int r = 0; r < count; r++) alike &= tile.seen[r].begin == any.begin && tile.seen[r].end == any.end;
    if (alike || !Code::has_nan) return sum_word_rows<Code, rows>(layout, chunk, tile, 0, any, ahead, out);
    for (int r = 0; r < count; r++)
        if (tile.seen[r].any()) sum_word_rows<Code, 1>(layout, chunk, tile, r, tile.seen[r], ahead, out);
}
