// Weights of keys: kept for the heads of one query, or summed over many.
#ifndef QK_ATTENTION_ATTEND
#error "attention/kernels/mass.inl: attention/kernels/attend.inl includes this file"
#endif

// The weights of a row, before the scales of values are multiplied into them.
inline void keep_weights(const float* weights, Seen seen, float* kept) {
    for (int t = seen.begin / width * width; t < seen.end; t += width) store(kept + t, load(weights + t));
}

constexpr float highest_power = 126.0f;  // of a weight, which is at most about 1 unless the given lse is wrong

// mass += 2^(score - lse) of the rows of a tile, in their order
inline void add_weights(const Tile& tile, const float* lse, int count, Seen any, float* mass) {
    for (int t = any.begin / width * width; t < any.end; t += width) {
        Float sum = load(mass + t);
        for (int r = 0; r < count; r++) {
            const Float power = min(splat(highest_power), load(tile.scores[r] + t) - splat(lse[r]));
            sum = sum + where_seen(tile.seen[r], t, exp2(power));
        }
        store(mass + t, sum);
    }
}

template <class Code>
inline void add_mass_as(const Layout& layout, const Stretch& stretch, const Rows& rows) {
    Tile tile;
    const auto first_blocks = static_cast<int>(std::min<int64_t>(chunk_tokens, stretch.num_tokens) / block_tokens);
    fetch_blocks(layout, stretch.keys, first_blocks);
    for (int64_t start = 0; start < stretch.num_tokens; start += chunk_tokens) {
        const int64_t size = std::min<int64_t>(chunk_tokens, stretch.num_tokens - start);
        const Block* const keys = stretch.keys + start / block_tokens;
        const bool has_next = start + 2 * chunk_tokens <= stretch.num_tokens;
        const Chunk chunk{keys, nullptr, nullptr, nullptr, nullptr};
        if (has_next) fetch_scales(layout, keys + chunk_blocks, chunk_blocks);
        for (int row = 0; row < rows.count; row += max_rows) {
            const int count = std::min(max_rows, rows.count - row);
            const Seen any = see(rows, row, count, stretch.first + start, size, tile);
            if (!any.any()) continue;
            score<Code, max_rows, tile_vecs<Code, max_rows>>(
                layout, chunk, rows.queries, row, any.begin / width * width, (any.end + width - 1) / width * width,
                row == 0 && has_next ? keys + chunk_blocks : keys, tile);
            add_weights(tile, rows.max + row, count, any, rows.mass + start);
        }
    }
}
