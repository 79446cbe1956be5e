// The kernel over a vector type. Included inside a namespace and a target region that define what lanes_*.inl does,
// dot, and this_isa.

#include "attention/codes.inl"

// 2^x for x <= 0, 0 below -126.5; NaN stays. Relative error at most 2^-23: 2e-9 of the polynomial (fitted to 2^f for
// |f| <= 1/2, relative error levelled) and roundings of order 2^-24 f.
inline Float exp2(Float x) {
    x = max(splat(-127.0f), x);
    const Float n = round(x), f = x - n;
    Float p = splat(1.5345810e-4f);
    p = fma(p, f, splat(1.3399931e-3f));
    p = fma(p, f, splat(9.6184891e-3f));
    p = fma(p, f, splat(5.5503286e-2f));
    p = fma(p, f, splat(2.4022646e-1f));
    p = fma(p, f, splat(6.9314718e-1f));
    p = fma(p, f, splat(1.0f));
    return p * power_of_2(n);
}

constexpr float lowest = -std::numeric_limits<float>::infinity();

// Registers of tokens, or of channels, side by side in a tile: 8 chains hide the latency of a multiply-add (4 cycles,
// two a cycle) for a single row.
constexpr int max_vecs = 8;

// At most chunk_tokens of a stretch; tokens are offsets into it.
struct Chunk {
    const Block* keys;
    const Block* values;
    int num_blocks;
    bool has_next;  // a whole chunk follows
};

// A walk over the codes of blocks that are needed soon. Values are fetched while keys are multiplied, and the next keys
// while values are, a few lines with every step: so the memory is busy all the time, never with more than a core can
// have underway. Into the L2, as two chunks fill an L1.
class Ahead {
public:
    Ahead() = default;
    Ahead(const Block* first, int count, int64_t block_bytes)
        : block_(first), last_(first + count), size_(block_bytes) { enter(); }

    void fetch(int64_t bytes) {
        if (!next_) return;
        for (int64_t i = 0; i < bytes; i += cache_line) __builtin_prefetch(next_ + i, 0, 2);
        next_ += bytes;
        if (next_ < end_) return;
        block_++;
        enter();
    }

    void fetch_all() {
        while (next_) fetch(size_);
    }

private:
    static constexpr int64_t cache_line = 64;

    void enter() {
        next_ = block_ < last_ ? block_->codes : nullptr;
        end_ = next_ + size_;
    }

    const Block* block_ = nullptr;
    const Block* last_ = nullptr;
    const std::byte* next_ = nullptr;
    const std::byte* end_ = nullptr;
    int64_t size_ = 0;
};

// Tokens of a chunk that a row sees, begin <= t < end.
struct Seen {
    int begin, end;
    bool any() const { return begin < end; }
};

// What a tile keeps of a chunk; weights once more for each group whose values have scales of their own.
struct Tile {
    alignas(64) float scores[max_tile][chunk_tokens];
    alignas(64) float weights[max_groups][max_tile][chunk_tokens];
    float base[max_groups][max_tile];  // sum of weights times minima
    float correction[max_tile];        // what the rise of the maximum scales earlier sums by
    Seen seen[max_tile];
    Ahead ahead;  // what is fetched meanwhile
};

// What codes of float8 are still to be multiplied with, for the tokens from `lane` on.
inline Float float8_scale(const Layout& layout, const Block& block, int lane) {
    const Float unit = splat(layout.code_unit());
    return layout.has_token_scales() ? load(reinterpret_cast<const float*>(block.scales) + lane) * unit : unit;
}

// ---- scores

template <class Code, int rows, int vecs>
inline void score_floats(const Layout& layout, const Block* const* blocks, const int* lane, const Queries& queries,
                         int row, Ahead& ahead, Float (&score)[rows][vecs]) {
    const int64_t step_bytes = vecs * width * layout.row_bytes() / layout.head_dim;
    const float* q = queries.values + row * layout.head_dim;
    for (auto& sums : score)
        for (auto& sum : sums) sum = splat(0.0f);
    for (int64_t d = 0; d < layout.head_dim; d++) {
        Float key[vecs];
        for (int v = 0; v < vecs; v++) key[v] = Code::at(blocks[v]->codes, d * block_tokens + lane[v]);
        for (int r = 0; r < rows; r++) {
            const Float query = splat(q[r * layout.head_dim + d]);
            for (int v = 0; v < vecs; v++) score[r][v] = fma(key[v], query, score[r][v]);
        }
        ahead.fetch(step_bytes);
    }
    if constexpr (is_float8(Code::format)) {
        for (int v = 0; v < vecs; v++) {
            const Float scale = float8_scale(layout, *blocks[v], lane[v]);
            for (int r = 0; r < rows; r++) score[r][v] = score[r][v] * scale;
        }
    }
}

template <class Code, int rows, int vecs>
inline void score_integers(const Layout& layout, const Block* const* blocks, const int* lane, const Queries& queries,
                           int row, Ahead& ahead, Float (&score)[rows][vecs]) {
    const int64_t groups = layout.groups(), group_size = layout.head_dim / groups;
    const int16_t* q = queries.codes + row * layout.head_dim;
    for (auto& sums : score)
        for (auto& sum : sums) sum = splat(0.0f);
    for (int64_t g = 0; g < groups; g++) {
        Int products[rows][vecs];
        for (auto& sums : products)
            for (auto& sum : sums) sum = zero_int();
        for (int64_t d = g * group_size; d < (g + 1) * group_size; d += Code::channels) {
            for (int v = 0; v < vecs; v++)
                for (int r = 0; r < rows; r++)
                    products[r][v] =
                        Code::dot_keys(products[r][v], blocks[v]->codes, d, lane[v], q + r * layout.head_dim);
            ahead.fetch(vecs * width * 2);
        }
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

// Scores of `vecs` registers of tokens at a time, as long as so many are left; then half as many.
template <class Code, int rows, int vecs>
inline void score(const Layout& layout, const Chunk& chunk, const Queries& queries, int row, int begin, int end,
                  Tile& tile) {
    Ahead ahead = tile.ahead;
    for (; begin + vecs * width <= end; begin += vecs * width) {
        const Block* blocks[vecs];
        int lane[vecs];
        for (int v = 0; v < vecs; v++) {
            blocks[v] = chunk.keys + (begin + v * width) / block_tokens;
            lane[v] = (begin + v * width) % block_tokens;
        }
        Float score[rows][vecs];
        if constexpr (is_integer(Code::format))
            score_integers<Code>(layout, blocks, lane, queries, row, ahead, score);
        else
            score_floats<Code>(layout, blocks, lane, queries, row, ahead, score);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vecs; v++) store(tile.scores[r] + begin + v * width, score[r][v]);
    }
    tile.ahead = ahead;
    if constexpr (vecs > 1) score<Code, rows, vecs / 2>(layout, chunk, queries, row, begin, end, tile);
}

// ---- weights

// Scores of one row to weights; what is outside of `seen`, within whole registers, has the weight 0.
inline void weigh(float* scores, Seen seen, float& max_score, float& sum, float& correction) {
    const int begin = seen.begin / width * width;
    Float highest = splat(lowest);
    for (int t = begin; t < seen.end; t += width) {
        Float score = load(scores + t);
        if (t < seen.begin || t + width > seen.end) {
            score = choose_lanes(seen.begin - t, seen.end - t, score, splat(lowest));
            store(scores + t, score);
        }
        highest = max(score, highest);
    }
    const float before = max_score;
    max_score = std::max(before, reduce_max(highest));
    const Float shift = splat(max_score);
    Float weights = splat(0.0f);
    for (int t = begin; t < seen.end; t += width) {
        const Float weight = exp2(load(scores + t) - shift);
        store(scores + t, weight);
        weights = weights + weight;
    }
    float first[width];
    store(first, exp2(splat(before) - shift));
    correction = first[0];
    sum = sum * correction + reduce_add(weights);
}

// Weights times the scales of the values, and their sum with the minima. A scale outside of `seen` may be anything.
template <class Code>
inline void scale_weights(const Layout& layout, const Chunk& chunk, int r, Tile& tile) {
    const Seen seen = tile.seen[r];
    const int begin = seen.begin / width * width;
    const auto inside = [&](int t, Float value) {
        return choose_lanes(seen.begin - t, seen.end - t, value, splat(0.0f));
    };
    if constexpr (is_float8(Code::format)) {
        for (int t = begin; t < seen.end; t += width) {
            const Float scale = float8_scale(layout, chunk.values[t / block_tokens], t % block_tokens);
            store(tile.weights[0][r] + t, inside(t, load(tile.scores[r] + t) * scale));
        }
    } else {
        for (int64_t g = 0; g < layout.groups(); g++) {
            Float base = splat(0.0f);
            for (int t = begin; t < seen.end; t += width) {
                const auto* scales = reinterpret_cast<const uint16_t*>(chunk.values[t / block_tokens].scales) +
                                     g * 2 * block_tokens + t % block_tokens;
                const Float weight = load(tile.scores[r] + t);
                store(tile.weights[g][r] + t, inside(t, weight * load_f16(scales)));
                base = base + inside(t, weight * load_f16(scales + block_tokens));
            }
            tile.base[g][r] = reduce_add(base);
        }
    }
}

// ---- values

// out[r][d ..] += weights of tokens [begin, end) times their values, for `vecs` registers of channels
template <class Code, int rows, int vecs>
inline void sum_values(const Layout& layout, const Chunk& chunk, const float* weights, int begin, int end, int64_t d,
                       Ahead& fetched, float* out) {
    const int64_t step_bytes = vecs * width * layout.row_bytes() / layout.head_dim;
    Ahead ahead = fetched;
    Float sum[rows][vecs];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vecs; v++) sum[r][v] = load(out + r * layout.head_dim + d + v * width);
    for (int t = begin; t < end; t++) {
        Float value[vecs];
        load_values<Code, vecs>(chunk.values[t / block_tokens].codes, t % block_tokens * layout.head_dim + d, value);
        for (int r = 0; r < rows; r++) {
            const Float weight = splat(weights[r * chunk_tokens + t]);
            for (int v = 0; v < vecs; v++) sum[r][v] = fma(value[v], weight, sum[r][v]);
        }
        ahead.fetch(step_bytes);
    }
    fetched = ahead;
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vecs; v++) store(out + r * layout.head_dim + d + v * width, sum[r][v]);
}

template <class Code, int rows, int vecs>
inline void sum_channels(const Layout& layout, const Chunk& chunk, const float* weights, int begin, int end, int64_t d,
                         int64_t d_end, Ahead& ahead, float* out) {
    for (; d + vecs * width <= d_end; d += vecs * width)
        sum_values<Code, rows, vecs>(layout, chunk, weights, begin, end, d, ahead, out);
    if constexpr (vecs * width > channel_step && Code::format != Format::int4)
        sum_channels<Code, rows, vecs / 2>(layout, chunk, weights, begin, end, d, d_end, ahead, out);
}

// The rows of a tile from `first` on; d_end - d is a group where values are scaled by group, or the whole head
template <class Code, int rows>
inline void sum_rows(const Layout& layout, const Chunk& chunk, Tile& tile, int first, int begin, int end,
                     float* out) {
    if (begin >= end) return;
    constexpr int vecs =
        Code::format == Format::int4 ? int4_group / width : std::min(max_vecs, tile_registers / rows);
    constexpr bool scaled = is_float8(Code::format) || is_integer(Code::format);
    const int64_t groups = std::max<int64_t>(1, layout.groups()), size = layout.head_dim / groups;
    for (int64_t g = 0; g < groups; g++)
        sum_channels<Code, rows, vecs>(layout, chunk, scaled ? tile.weights[g][first] : tile.scores[first], begin, end,
                                       g * size, (g + 1) * size, tile.ahead, out + first * layout.head_dim);
}

// What was summed before this chunk, scaled down as the maximum rose; then the minima's part of this chunk.
inline void correct(const Layout& layout, const Tile& tile, int r, float* out) {
    const Float correction = splat(tile.correction[r]);
    const int64_t groups = layout.groups(), size = layout.head_dim / std::max<int64_t>(1, groups);
    for (int64_t d = 0; d < layout.head_dim; d += width) {
        Float sum = load(out + d) * correction;
        if (groups) sum = sum + splat(tile.base[d / size][r]);
        store(out + d, sum);
    }
}

// ---- a tile, a chunk, a stretch

template <class Code, int rows>
inline void attend_tile(const Layout& layout, const Chunk& chunk, const Rows& all, int row, Tile& tile) {
    const int count = std::min(rows, all.count - row);
    int first = chunk_tokens, last = 0;               // tokens that any row sees
    int common_begin = 0, common_end = chunk_tokens;  // that all rows see
    for (int r = 0; r < rows; r++) {
        const Seen seen = tile.seen[r];
        if (r < count && seen.any()) first = std::min(first, seen.begin), last = std::max(last, seen.end);
        if (r < count) common_begin = std::max(common_begin, seen.begin), common_end = std::min(common_end, seen.end);
    }
    if (first >= last) return;
    // Only the first rows fetch: to those that follow all of it is near.
    tile.ahead = row == 0 ? Ahead(chunk.values, chunk.num_blocks, layout.block_bytes()) : Ahead();
    score<Code, rows, std::min(max_vecs, tile_registers / rows)>(layout, chunk, all.queries, row,
                                                                 first / width * width,
                                                                 (last + width - 1) / width * width, tile);
    for (int r = 0; r < count; r++) {
        if (!tile.seen[r].any()) continue;
        weigh(tile.scores[r], tile.seen[r], all.max[row + r], all.sum[row + r], tile.correction[r]);
        if constexpr (is_float8(Code::format) || is_integer(Code::format)) scale_weights<Code>(layout, chunk, r, tile);
        correct(layout, tile, r, all.out + (row + r) * layout.head_dim);
    }
    const bool fetches = row == 0 && chunk.has_next;
    tile.ahead = fetches ? Ahead(chunk.keys + chunk_blocks, chunk_blocks, layout.block_bytes()) : Ahead();
    // Every row in the order of its tokens: those before what all see, those, and those behind.
    float* out = all.out + row * layout.head_dim;
    common_end = std::max(common_begin, common_end);
    for (int r = 0; r < count; r++)
        sum_rows<Code, 1>(layout, chunk, tile, r, tile.seen[r].begin, std::min(common_begin, tile.seen[r].end), out);
    sum_rows<Code, rows>(layout, chunk, tile, 0, common_begin, common_end, out);
    for (int r = 0; r < count; r++)
        sum_rows<Code, 1>(layout, chunk, tile, r, std::max(common_end, tile.seen[r].begin), tile.seen[r].end, out);
}

inline void fetch_scales(const Layout& layout, const Block* keys, const Block* values, int count) {
    if (!layout.has_token_scales()) return;
    for (int i = 0; i < count; i++) {
        __builtin_prefetch(keys[i].scales);
        __builtin_prefetch(values[i].scales);
    }
}

template <class Code>
inline void attend_as(const Layout& layout, const Stretch& stretch, const Rows& rows) {
    Tile tile;
    // Nothing was there to fetch the first keys: at once, rather than one after the other as they are read.
    const auto first_blocks = static_cast<int>(std::min<int64_t>(chunk_tokens, stretch.num_tokens) / block_tokens);
    Ahead(stretch.keys, first_blocks, layout.block_bytes()).fetch_all();
    fetch_scales(layout, stretch.keys, stretch.values, first_blocks);
    for (int64_t start = 0; start < stretch.num_tokens; start += chunk_tokens) {
        const int64_t first = stretch.first + start, size = std::min<int64_t>(chunk_tokens, stretch.num_tokens - start);
        const Chunk chunk{stretch.keys + start / block_tokens, stretch.values + start / block_tokens,
                          static_cast<int>((size + block_tokens - 1) / block_tokens),
                          start + 2 * chunk_tokens <= stretch.num_tokens};
        if (chunk.has_next)
            fetch_scales(layout, chunk.keys + chunk_blocks, chunk.values + chunk_blocks, chunk_blocks);
        for (int row = 0, step; row < rows.count; row += step) {
            const int left = rows.count - row;
            step = left > max_rows / 2 ? max_rows : left > 2 ? 4 : left;
            for (int r = 0; r < std::min(step, left); r++)
                tile.seen[r] = {static_cast<int>(std::clamp<int64_t>(rows.begin[row + r] - first, 0, size)),
                                static_cast<int>(std::clamp<int64_t>(rows.end[row + r] - first, 0, size))};
            if (step == 8)
                attend_tile<Code, max_rows>(layout, chunk, rows, row, tile);
            else if (step == 4)
                attend_tile<Code, 4>(layout, chunk, rows, row, tile);
            else if (step == 2)
                attend_tile<Code, 2>(layout, chunk, rows, row, tile);
            else
                attend_tile<Code, 1>(layout, chunk, rows, row, tile);
        }
    }
}

Isa attend(const Layout& layout, const Stretch& stretch, const Rows& rows) {
    switch (layout.format) {
        case Format::f32: attend_as<F32>(layout, stretch, rows); break;
        case Format::f16: attend_as<F16>(layout, stretch, rows); break;
        case Format::bf16: attend_as<Bf16>(layout, stretch, rows); break;
        case Format::e4m3:
            layout.has_token_scales() ? attend_as<E4m3>(layout, stretch, rows)
                                      : attend_as<E4m3OrNan>(layout, stretch, rows);
            break;
        case Format::e5m2: attend_as<E5m2>(layout, stretch, rows); break;
        case Format::int8: attend_as<Int8>(layout, stretch, rows); break;
        case Format::int4: attend_as<Int4>(layout, stretch, rows); break;
    }
    return this_isa;
}

void combine(const float* max_scores, const float* sums, int64_t stride, const float* partial, int64_t partial_stride,
             int64_t parts, float factor, int64_t head_dim, float* out) {
    float highest = lowest, total = 0;
    for (int64_t i = 0; i < parts; i++) highest = std::max(highest, max_scores[i * stride]);
    std::fill_n(out, head_dim, 0.0f);
    for (int64_t i = 0; i < parts; i++) {
        if (sums[i * stride] == 0) continue;  // no token seen
        float weight[width];
        store(weight, exp2(splat(max_scores[i * stride]) - splat(highest)));
        total += weight[0] * sums[i * stride];
        for (int64_t d = 0; d < head_dim; d += width)
            store(out + d, fma(load(partial + i * partial_stride + d), splat(weight[0]), load(out + d)));
    }
    if (total == 0) return;
    const Float scale = splat(factor / total);
    for (int64_t d = 0; d < head_dim; d += width) store(out + d, load(out + d) * scale);
}
