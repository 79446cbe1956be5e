// Scores of a chunk's tokens for the rows of a tile.
#ifndef QK_ATTENTION_ATTEND
#error "attention/kernels/scores.inl: attention/kernels/attend.inl includes this file"
#endif

template <class Value, int rows, int vecs>
inline void copy(const Value (&from)[rows][vecs], Value (&to)[rows][vecs]) {
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vecs; v++) to[r][v] = from[r][v];
}

// Sums of q times keys read as floats, for `vecs` registers of tokens
template <class Code, int rows, int vecs>
inline void score_floats(const Layout& layout, const Block* const* blocks, const int* lane, const float* q,
                         const Block* const* ahead, Float (&score)[rows][vecs]) {
    Float sums[rows][vecs];  // local, so that it stays in registers
    for (auto& row : sums)
        for (auto& sum : row) sum = splat(0.0f);
    for (int64_t d = 0; d < layout.head_dim; d += Code::elements) {
        for (int v = 0; v < vecs; v++) {
            Float key[Code::elements];
            const int64_t i = d / Code::elements * block_tokens + lane[v];
            Code::unpack(Code::raw(blocks[v]->codes, i), key);
            fetch<Code>(*ahead[v], i);
            for (int e = 0; e < Code::elements; e++)
                for (int r = 0; r < rows; r++)
                    sums[r][v] = fma(key[e], splat(q[r * layout.head_dim + d + e]), sums[r][v]);
        }
    }
    copy(sums, score);
}

// Sums of codes of q times codes of keys, over channels [d, d_end)
template <class Code, int rows, int vecs>
inline void score_words(const Layout& layout, const Block* const* blocks, const int* lane, const int16_t* q, int64_t d,
                        int64_t d_end, const Block* const* ahead, typename Code::Sum (&products)[rows][vecs]) {
    typename Code::Sum sums[rows][vecs];  // local, so that it stays in registers
    for (auto& row : sums)
        for (auto& sum : row) sum = Code::zero();
    for (; d < d_end; d += Code::elements) {
        Int words[vecs][Code::elements / 2];
        for (int v = 0; v < vecs; v++) {
            const int64_t i = d / Code::elements * block_tokens + lane[v];
            Code::words(load_int(blocks[v]->codes + i * lane_bytes), words[v]);
            fetch<Code>(*ahead[v], i);
        }
        for (int p = 0; p < Code::elements / 2; p++)
            for (int r = 0; r < rows; r++)
                for (int v = 0; v < vecs; v++)
                    sums[r][v] = Code::dot(sums[r][v], words[v][p], splat_pair(q + r * layout.head_dim + d + 2 * p));
    }
    copy(sums, products);
}

template <class Code, int rows, int vecs>
inline void score_integers(const Layout& layout, const Block* const* blocks, const int* lane, const Queries& queries,
                           int row, const Block* const* ahead, Float (&score)[rows][vecs]) {
    const int64_t groups = layout.groups(), group_size = layout.head_dim / groups;
    const int16_t* q = queries.codes + row * layout.head_dim;
    for (auto& sums : score)
        for (auto& sum : sums) sum = splat(0.0f);
    for (int64_t g = 0; g < groups; g++) {
        Int products[rows][vecs];
        score_words<Code>(layout, blocks, lane, q, g * group_size, (g + 1) * group_size, ahead, products);
        for (int v = 0; v < vecs; v++) {
            const auto* scales = reinterpret_cast<const uint16_t*>(blocks[v]->scales) + g * 2 * block_tokens + lane[v];
            const Float scale = load_f16(scales), minimum = load_f16(scales + block_tokens);
            for (int r = 0; r < rows; r++) {
                const Float product = to_float(products[r][v]) * splat(queries.scale[row + r]);
                const Float sum = splat(queries.sums[(row + r) * groups + g]);
                score[r][v] = fma(product, scale, fma(minimum, sum, score[r][v]));
            }
        }
    }
}

#include "attention/kernels/channel_scores.inl"

// Scores of `vecs` registers of tokens at a time, as long as these are left; then half as many. `ahead`: blocks to be
// fetched meanwhile.
template <class Code, int rows, int vecs>
inline void score(const Layout& layout, const Chunk& chunk, const Queries& queries, int row, int begin, int end,
                  const Block* ahead, Tile& tile) {
    if constexpr (is_kivi(Code::format) && vecs == tile_vecs<Code, rows>)
        if (begin < end) scale_queries<rows>(layout, chunk, queries, row, {begin, end}, tile.channels);
    for (; begin + vecs * width <= end; begin += vecs * width) {
        const Block *blocks[vecs], *fetched[vecs];
        int lane[vecs];
        for (int v = 0; v < vecs; v++) {
            blocks[v] = chunk.keys + (begin + v * width) / block_tokens;
            fetched[v] = ahead + (begin + v * width) / block_tokens;
            lane[v] = (begin + v * width) % block_tokens;
        }
        Float score[rows][vecs];
        const int64_t first = row * layout.head_dim, size = layout.head_dim;
        if constexpr (is_kivi(Code::format))
            score_channels<Code>(layout, blocks, lane, tile.channels, begin, fetched, score);
        else if constexpr (is_integer(Code::format))
            score_integers<Code>(layout, blocks, lane, queries, row, fetched, score);
        else if constexpr (Code::is_dot)
            score_words<Code>(layout, blocks, lane, queries.codes + first, 0, size, fetched, score);
        else
            score_floats<Code>(layout, blocks, lane, queries.values + first, fetched, score);
        for (int v = 0; v < vecs; v++) {
            const Float scale = is_float8(Code::format) ? float8_scale(layout, *blocks[v], lane[v]) : splat(1.0f);
            for (int r = 0; r < rows; r++)
                store(tile.scores[r] + begin + v * width, is_float8(Code::format) ? score[r][v] * scale : score[r][v]);
        }
    }
    if constexpr (vecs > 1) score<Code, rows, vecs / 2>(layout, chunk, queries, row, begin, end, ahead, tile);
}
