// Absorbed multi-head latent attention: all heads read one row per token, as its key and, its first part, as its value.
// A lane is a head in scores and a channel in values, so that neither sums across lanes nor wants the row twice.
#ifndef QK_ATTENTION_ATTEND
#error "attention/kernels/latent.inl: include attention/kernels/attend.inl before this file"
#endif

#include "attention/kernels/latent_codes.inl"

// scores[t][h] of `tokens` rows for `vecs` registers of heads
template <int tokens, int vecs>
inline void score_latents(const LatentRows& work, const float* rows, int64_t head, float* scores) {
    const int64_t size = work.shape.head_dim;
    const float* queries[vecs];  // of 16 heads side by side, so that a step reads whole cache lines in turn
    for (int v = 0; v < vecs; v++) {
        const int64_t first = head + v * width;
        queries[v] = work.queries + first / latent_heads * latent_heads * size + first % latent_heads;
    }
    Float sum[tokens][vecs];
    for (auto& row : sum)
        for (auto& value : row) value = splat(0.0f);
    for (int64_t d = 0; d < size; d++) {
        Float query[vecs];
        for (int v = 0; v < vecs; v++) query[v] = load(queries[v] + d * latent_heads);
        for (int t = 0; t < tokens; t++) {
            const Float key = splat(rows[t * size + d]);
            for (int v = 0; v < vecs; v++) sum[t][v] = fma(query[v], key, sum[t][v]);
        }
    }
    for (int t = 0; t < tokens; t++)
        for (int v = 0; v < vecs; v++) store(scores + t * work.heads + head + v * width, sum[t][v]);
}

template <int vecs>
inline void score_latent_chunk(const LatentRows& work, const float* rows, int64_t count, int64_t head, float* scores) {
    constexpr int tokens = tile_registers / vecs;
    int64_t t = 0;
    for (; t + tokens <= count; t += tokens)
        score_latents<tokens, vecs>(work, rows + t * work.shape.head_dim, head, scores + t * work.heads);
    for (; t < count; t++) score_latents<1, vecs>(work, rows + t * work.shape.head_dim, head, scores + t * work.heads);
}

// A row with an infinity or NaN makes all channels of the heads that see it NaN, and adds zeros to all others. No score
// with such a row is finite, so the scores of one head find them.
inline void take_out_rows(const LatentRows& work, int64_t count, float* rows, float* scores) {
    const int64_t size = work.shape.head_dim;
    for (int64_t t = 0; t < count; t++, rows += size, scores += work.heads) {
        if (std::isfinite(scores[0]) || std::all_of(rows, rows + size, [](float x) { return std::isfinite(x); }))
            continue;
        std::fill_n(rows, work.shape.value_dim, 0.0f);
        std::fill_n(scores, work.heads, std::numeric_limits<float>::quiet_NaN());
    }
}

// Scores to weights, for the heads of one register; earlier sums are scaled down as the maximum rises.
inline void weigh_latents(const LatentRows& work, int64_t count, int64_t head, float* scores) {
    const Float before = load(work.max + head);
    Float highest = before;
    for (int64_t t = 0; t < count; t++) highest = max(load(scores + t * work.heads + head), highest);
    Float weights = splat(0.0f);
    for (int64_t t = 0; t < count; t++) {
        const Float weight = exp2(load(scores + t * work.heads + head) - highest);
        store(scores + t * work.heads + head, weight);
        weights = weights + weight;
    }
    float correction[width];
    store(correction, exp2(before - highest));
    store(work.max + head, highest);
    store(work.sum + head, fma(load(work.sum + head), load(correction), weights));
    for (int64_t i = 0; i < std::min<int64_t>(width, work.num_heads - head); i++) {
        float* out = work.out + (head + i) * work.shape.value_dim;
        const Float factor = splat(correction[i]);
        for (int64_t d = 0; d < work.shape.value_dim; d += width) store(out + d, load(out + d) * factor);
    }
}

// out[h][d ..] += weights times the rows' first channels, for 4 heads and a tile's registers of channels
inline void sum_latents(const LatentRows& work, const float* rows, int64_t count, const float* weights, int64_t head,
                        int64_t d) {
    constexpr int heads = 4, vecs = tile_registers / heads;
    Float sum[heads][vecs];
    float* out = work.out + head * work.shape.value_dim + d;
    for (int h = 0; h < heads; h++)
        for (int v = 0; v < vecs; v++) sum[h][v] = load(out + h * work.shape.value_dim + v * width);
    for (int64_t t = 0; t < count; t++) {
        Float value[vecs];
        for (int v = 0; v < vecs; v++) value[v] = load(rows + t * work.shape.head_dim + d + v * width);
        for (int h = 0; h < heads; h++) {
            const Float weight = splat(weights[t * work.heads + head + h]);
            for (int v = 0; v < vecs; v++) sum[h][v] = fma(value[v], weight, sum[h][v]);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int v = 0; v < vecs; v++) store(out + h * work.shape.value_dim + v * width, sum[h][v]);
}

Isa attend_latents(const LatentRows& work) {
    constexpr int channels = tile_registers / 4 * width;
    static_assert(latent_step % channels == 0 && latent_heads % width == 0);
    float* rows = work.scratch;
    float* scores = work.scratch + latent_chunk * work.shape.head_dim;
    for (int64_t start = 0; start < work.count; start += latent_chunk) {
        const int64_t count = std::min<int64_t>(latent_chunk, work.count - start);
        for (int64_t t = 0; t < count; t++)
            unpack_latent(work.shape, work.rows[start + t], rows + t * work.shape.head_dim);
        int64_t head = 0;
        for (; head + 2 * width <= work.heads; head += 2 * width)
            score_latent_chunk<2>(work, rows, count, head, scores);
        for (; head < work.heads; head += width) score_latent_chunk<1>(work, rows, count, head, scores);
        take_out_rows(work, count, rows, scores);
        hide_latents(work, start, count, scores);
        for (head = 0; head < work.heads; head += width) weigh_latents(work, count, head, scores);
        if (work.weights) {
            std::copy_n(scores, count * work.heads, work.weights + start * work.heads);
            std::copy_n(work.max, work.heads, work.chunk_max + start / latent_chunk * work.heads);
        }
        for (head = 0; head < work.num_heads; head += 4)
            for (int64_t d = 0; d < work.shape.value_dim; d += channels)
                sum_latents(work, rows, count, scores, head, d);
    }
    return this_isa;
}

void sum_latent_heads(const LatentWeights& chunk, float* mass) {
    std::fill_n(mass, chunk.count, 0.0f);
    // Registers begin with the query's first head, so that a sum is the same whatever other queries are next to it.
    for (int64_t head = chunk.first; head < chunk.last; head += width) {
        const auto heads = static_cast<int>(std::min<int64_t>(width, chunk.last - head));
        float max[width] = {}, inverse[width] = {};
        for (int i = 0; i < heads; i++) {
            max[i] = chunk.totals[head + i].max;
            inverse[i] = 1.0f / chunk.totals[head + i].sum;
        }
        const Float factor = exp2(load(chunk.max + head) - load(max)) * load(inverse);
        for (int64_t t = 0; t < chunk.count; t++) {
            const Float weight = load(chunk.weights + t * chunk.heads + head) * factor;
            mass[t] += reduce_add(choose_lanes(0, heads, weight, splat(0.0f)));
        }
    }
}
