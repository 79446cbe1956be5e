// Scores to weights, and weights to the factors of values.
#ifndef QK_ATTENTION_ATTEND
#error "attention/kernels/weights.inl: attention/kernels/attend.inl includes this file"
#endif

// 2^x for x <= 0, 0 below about 2^-150; NaN stays. Relative error at most 2^-23: 2e-9 of the
// polynomial (fitted to 2^f for |f| <= 1/2, relative error levelled) and roundings of order 2^-24 f.
inline Float exp2(Float x) {
    x = max(splat(lowest_power), x);
    const Float n = round(x), f = x - n;
    Float p = splat(1.5345810e-4f);
    p = fma(p, f, splat(1.3399931e-3f));
    p = fma(p, f, splat(9.6184891e-3f));
    p = fma(p, f, splat(5.5503286e-2f));
    p = fma(p, f, splat(2.4022646e-1f));
    p = fma(p, f, splat(6.9314718e-1f));
    p = fma(p, f, splat(1.0f));
    return scale_by_power(p, n);
}

// Scores of one row to weights; tokens outside of `seen`, within whole registers, have the weight 0.
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

// `value` in the lanes of tokens t.. that are seen, else 0: other lanes may hold anything.
inline Float where_seen(Seen seen, int t, Float value) {
    if (t >= seen.begin && t + width <= seen.end) return value;
    return choose_lanes(seen.begin - t, seen.end - t, value, splat(0.0f));
}

// Weights times the scales of float8 values, in their place.
inline void scale_weights(const Layout& layout, const Chunk& chunk, Seen seen, float* weights) {
    for (int t = seen.begin / width * width; t < seen.end; t += width) {
        const Float scale = float8_scale(layout, chunk.values[t / block_tokens], t % block_tokens);
        store(weights + t, where_seen(seen, t, load(weights + t) * scale));
    }
}

// The scales of a chunk's values, or those of one group, as floats.
struct ValueScales {
    alignas(64) float scale[chunk_tokens], minimum[chunk_tokens];

    template <class Code>
    void read(const Layout& layout, const Chunk& chunk, int64_t group, int begin, int end) {
        for (int t = begin; t < end; t += width) {
            const Block& block = chunk.values[t / block_tokens];
            if constexpr (is_integer(Code::format)) {
                const auto* halves = reinterpret_cast<const uint16_t*>(block.scales) + group * 2 * block_tokens;
                store(scale + t, load_f16(halves + t % block_tokens));
                store(minimum + t, load_f16(halves + block_tokens + t % block_tokens));
            } else {
                store(scale + t, float8_scale(layout, block, t % block_tokens));
            }
        }
    }
};

constexpr float smallest_scaled = 0x1p-112f;  // below, 32767 / it overflows

// Integers have weights of 16 bits too, whole multiples of a 32767th of the largest of the chunk. NaN is in `base`.
inline void round_weights(const float* weights, const ValueScales& scales, Seen seen, int16_t* codes, float& step,
                          float& base) {
    alignas(64) float scaled[chunk_tokens];
    const int begin = seen.begin / width * width;
    Float largest = splat(0.0f), sum = splat(0.0f);
    for (int t = begin; t < seen.end; t += width) {
        const Float weight = load(weights + t), value = where_seen(seen, t, weight * load(scales.scale + t));
        store(scaled + t, value);
        largest = max(value, largest);
        sum = sum + where_seen(seen, t, weight * load(scales.minimum + t));
    }
    base = reduce_add(sum);
    const float most = reduce_max(largest);
    const bool zero = most < smallest_scaled;
    step = zero ? 0.0f : most / 32767.0f;
    const Float inverse = splat(zero ? 0.0f : 32767.0f / most);
    for (int t = begin; t < seen.end; t += width) store_words(codes + t, load(scaled + t) * inverse);
}

// Factors of the values of tokens begin <= t < end, whole blocks, as pairs, for all rows of a tile; 0
// if a row does not see the token, and in rows that are not there.
template <class Code, int rows>
inline void pair_weights(const Layout& layout, const Chunk& chunk, int count, int begin, int end, Tile& tile) {
    ValueScales scales;
    for (int64_t g = 0; g < std::max<int64_t>(1, layout.groups()); g++) {
        scales.read<Code>(layout, chunk, g, begin, end);
        for (int r = 0; r < rows; r++) {
            const Seen seen = r < count && tile.seen[r].any() ? tile.seen[r] : Seen{end, end};
            int16_t* codes = tile.codes[g][r];
            const int first = seen.begin / width * width, last = (seen.end + width - 1) / width * width;
            std::fill(codes + begin, codes + first, int16_t{0});
            std::fill(codes + last, codes + end, int16_t{0});
            if constexpr (is_integer(Code::format)) {
                round_weights(tile.scores[r], scales, seen, codes, tile.step[g][r], tile.base[g][r]);
            } else {
                for (int t = first; t < seen.end; t += width)
                    Code::store_weights(codes + t,
                                        where_seen(seen, t, load(tile.scores[r] + t) * load(scales.scale + t)));
            }
        }
    }
}
