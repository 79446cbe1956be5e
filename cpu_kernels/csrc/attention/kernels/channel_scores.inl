// Scores of keys that have a scale and a minimum for each channel of a group of tokens (Liu et al. 2024, KIVI,
// arXiv:2402.02750):
//
//     q . k = sum over channels of q (scale code + minimum) = (q scale) . codes + q . minimum
//
// For each group, q times the scales is rounded to 16 bits as a query is.
#ifndef QK_ATTENTION_ATTEND
#error "attention/kernels/channel_scores.inl: attention/kernels/scores.inl includes this file"
#endif

constexpr float smallest_product = 0x1p-112f;  // below, 32767 / it overflows

// One row's query q [D] for the keys of group `group` of a chunk.
inline void scale_query(const Layout& layout, const Block* keys, const float* q, int group, int row,
                        ChannelQueries& queries) {
    constexpr int group_blocks = group_tokens / block_tokens;
    const auto* scales = reinterpret_cast<const uint16_t*>(keys[group * group_blocks].scales);
    const auto* minima = reinterpret_cast<const uint16_t*>(keys[group * group_blocks + 1].scales);
    alignas(64) float products[max_integer_head];
    Float largest = splat(0.0f), sum = splat(0.0f);
    for (int64_t d = 0; d < layout.head_dim; d += width) {
        const Float query = load(q + d), product = query * load_f16(scales + d);
        store(products + d, product);
        largest = max(abs(product), largest);
        sum = fma(query, load_f16(minima + d), sum);
    }
    queries.base[group][row] = reduce_add(sum);
    const float most = reduce_max(largest);
    const bool finite = most <= std::numeric_limits<float>::max(), zero = most < smallest_product;
    queries.step[group][row] = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0.0f : most / 32767.0f;
    const Float inverse = splat(!finite || zero ? 0.0f : 32767.0f / most);
    int16_t* codes = queries.codes[group][row];
    for (int64_t d = 0; d < layout.head_dim; d += width) store_words(codes + d, load(products + d) * inverse);
}

// The queries of rows `row`.. for the groups that hold the tokens of `any`.
template <int rows>
inline void scale_queries(const Layout& layout, const Chunk& chunk, const Queries& queries, int row, Seen any,
                          ChannelQueries& scaled) {
    for (int group = any.begin / group_tokens; group * group_tokens < any.end; group++)
        for (int r = 0; r < rows; r++)
            scale_query(layout, chunk.keys, queries.values + (row + r) * layout.head_dim, group, r, scaled);
}

// Scores of `vecs` registers of tokens from `token` of a chunk on.
template <class Code, int rows, int vecs>
inline void score_channels(const Layout& layout, const Block* const* blocks, const int* lane,
                           const ChannelQueries& queries, int token, const Block* const* ahead,
                           Float (&score)[rows][vecs]) {
    Int sums[rows][vecs];  // local, so that it stays in registers
    int group[vecs];
    for (int v = 0; v < vecs; v++) group[v] = (token + v * width) / static_cast<int>(group_tokens);
    for (auto& row : sums)
        for (auto& sum : row) sum = Code::zero();
    for (int64_t d = 0; d < layout.head_dim; d += Code::elements) {
        for (int v = 0; v < vecs; v++) {
            const int64_t i = d / Code::elements * block_tokens + lane[v];
            Int words[Code::elements / 2];
            Code::words(load_int(blocks[v]->codes + i * lane_bytes), words);
            fetch<Code>(*ahead[v], i);
            for (int p = 0; p < Code::elements / 2; p++)
                for (int r = 0; r < rows; r++)
                    sums[r][v] = Code::dot(sums[r][v], words[p], splat_pair(queries.codes[group[v]][r] + d + 2 * p));
        }
    }
    for (int v = 0; v < vecs; v++)
        for (int r = 0; r < rows; r++)
            score[r][v] = fma(to_float(sums[r][v]), splat(queries.step[group[v]][r]), splat(queries.base[group[v]][r]));
}
