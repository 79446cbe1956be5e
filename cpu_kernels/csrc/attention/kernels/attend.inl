// The kernel over a vector type and a format's Code. Include it after attention/lanes_*.inl, dot_words and
// attention/kernels/codes.inl.
#ifndef QK_ATTENTION_CODES
#error "attention/kernels/attend.inl: include attention/kernels/codes.inl before this file"
#endif
#define QK_ATTENTION_ATTEND

#include "attention/kernels/tile.inl"
#include "attention/kernels/scores.inl"
#include "attention/kernels/weights.inl"
#include "attention/kernels/values.inl"
#include "attention/kernels/mass.inl"

// any: tokens that one row of the tile or more see
template <class Code, int rows>
void attend_tile(const Layout& layout, const Chunk& chunk, const Rows& all, int row, Seen any, Tile& tile) {
    const int count = std::min(rows, all.count - row);
    // Only the first rows fetch: for later rows all of it is in a cache already.
    const Block* after_keys = row == 0 ? chunk.values : chunk.keys;
    const Block* after_values = row == 0 && chunk.next_keys ? chunk.next_keys : chunk.values;
    score<Code, rows, tile_vecs<Code, rows>>(layout, chunk, all.queries, row, any.begin / width * width,
                                             (any.end + width - 1) / width * width, after_keys, tile);
    float* out = all.out + row * layout.head_dim;
    for (int r = 0; r < rows; r++) {
        tile.correction[r] = 1;
        if (r >= count || !tile.seen[r].any()) continue;
        weigh(tile.scores[r], tile.seen[r], all.max[row + r], all.sum[row + r], tile.correction[r]);
        if (chunk.weights) {
            keep_weights(tile.scores[r], tile.seen[r], chunk.weights + (row + r) * chunk_tokens);
            chunk.max[row + r] = all.max[row + r];
        }
        if constexpr (!Code::is_dot) {
            if constexpr (is_float8(Code::format)) scale_weights(layout, chunk, tile.seen[r], tile.scores[r]);
            correct(layout, tile.correction[r], out + r * layout.head_dim);
        }
    }
    if constexpr (Code::is_dot) {
        const int begin = any.begin / block_tokens * block_tokens;
        const int end = (any.end + block_tokens - 1) / block_tokens * block_tokens;
        pair_weights<Code, rows>(layout, chunk, count, begin, end, tile);
        sum_word_tile<Code, rows>(layout, chunk, count, any, tile, after_values, out);
    } else {
        sum_tile<Code, rows>(layout, chunk, count, tile, after_values, out);
    }
}

template <class Code>
inline void attend_as(const Layout& layout, const Stretch& stretch, const Rows& rows) {
    if (rows.mass) return add_mass_as<Code>(layout, stretch, rows);
    Tile tile;
    // Nothing was there to fetch the first keys: at once, rather than one after the other as they are read.
    const auto first_blocks = static_cast<int>(std::min<int64_t>(chunk_tokens, stretch.num_tokens) / block_tokens);
    fetch_blocks(layout, stretch.keys, first_blocks);
    fetch_scales(layout, stretch.keys, first_blocks);
    fetch_scales(layout, stretch.values, first_blocks);
    for (int64_t start = 0; start < stretch.num_tokens; start += chunk_tokens) {
        const int64_t first = stretch.first + start, size = std::min<int64_t>(chunk_tokens, stretch.num_tokens - start);
        const int64_t block = start / block_tokens;
        const bool has_next = start + 2 * chunk_tokens <= stretch.num_tokens;
        const Chunk chunk{stretch.keys + block, stretch.values + block,
                          has_next ? stretch.keys + block + chunk_blocks : nullptr,
                          rows.weights ? rows.weights + start * rows.count : nullptr,
                          rows.weights ? rows.chunk_max + start / chunk_tokens * rows.count : nullptr};
        if (has_next) {
            fetch_scales(layout, chunk.next_keys, chunk_blocks);
            fetch_scales(layout, chunk.values + chunk_blocks, chunk_blocks);
        }
        for (int row = 0, step; row < rows.count; row += step) {
            const int left = rows.count - row;
            step = left > max_rows / 2 ? max_rows : left > 2 ? 4 : left;
            const Seen any = see(rows, row, std::min(step, left), first, size, tile);
            if (!any.any()) continue;
            if (step == 8)
                attend_tile<Code, max_rows>(layout, chunk, rows, row, any, tile);
            else if (step == 4)
                attend_tile<Code, 4>(layout, chunk, rows, row, any, tile);
            else if (step == 2)
                attend_tile<Code, 2>(layout, chunk, rows, row, any, tile);
            else
                attend_tile<Code, 1>(layout, chunk, rows, row, any, tile);
        }
    }
}
