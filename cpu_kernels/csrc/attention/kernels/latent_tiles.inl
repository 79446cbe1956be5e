// Latents by tiles of bfloat16: the heads of one query, or of several, over a stretch of up to latent_split rows.
//
//     scores [256 tokens][heads]  = rows @ queries         16 x 16 x 32 per instruction, sums in float32
//     P      [heads][256 tokens]  = 2^(score - max)        rounded to bfloat16
//     out    [heads][value_dim]   = P @ rows
//
// As tokens are the rows of the first product, a tile of bf16 latents is loaded as they are stored. The second one takes
// pairs of rows, which are made 64 channels at a time and stay in the L1. The maximum is that of the whole stretch, so
// that no sum is ever scaled.
//
// A head's sums are the same chain for any number of heads: tokens that it does not see add zeros. Rows that are not
// finite are taken out, as zero times NaN is NaN.
#ifndef QK_ATTENTION_ATTEND
#error "attention/kernels/latent_tiles.inl: include attention/kernels/tiles_bf16.inl before this file"
#endif

inline void put_number(uint16_t* to, Float value) {
    const __m256bh rounded = _mm512_cvtneps_pbh(value.v);
    std::memcpy(to, &rounded, sizeof rounded);
}

#include "attention/kernels/latent_codes.inl"

constexpr int64_t step_size = 32;  // tokens or channels that one instruction sums
constexpr int64_t value_panels = latent_step / tile_rows;  // tiles of values side by side: as many sums
static_assert(latent_heads == tile_rows && width == tile_rows && value_panels == 4);

constexpr int64_t ceil_step(int64_t size) { return (size + step_size - 1) / step_size; }

struct LatentTiles {
    Scratch memory;
    int64_t key_steps, token_steps;  // of 32 channels, of 32 tokens
    int64_t row_bytes;  // from row to row of a tile of latents
    const std::byte* rows[latent_split];  // in bfloat16; 16 at a time follow each other
    std::byte* queries;  // [heads / 16][key_steps] tiles: [16 pairs of channels][16 heads][2]
    std::byte* unpacked;  // [tokens][row_bytes]
    float* scores;  // [tokens][heads]
    std::byte* weights;  // [heads / 16][token_steps] tiles: [16 heads][32 tokens]
    std::byte* values;  // [token_steps][4] tiles: [16 pairs of tokens][16 channels][2]

    void allocate(const LatentRows& work) {
        key_steps = ceil_step(work.shape.head_dim);
        token_steps = ceil_step(work.count);
        row_bytes = key_steps * tile_stride;
        const int64_t tokens = token_steps * step_size, blocks = work.heads / tile_rows;
        const int64_t sizes[] = {blocks * key_steps * tile_bytes, tokens * row_bytes, tokens * work.heads * 4,
                                 blocks * token_steps * tile_bytes, token_steps * value_panels * tile_bytes};
        int64_t total = 0;
        for (const int64_t size : sizes) total += size;
        std::byte* next = memory.get(static_cast<size_t>(total));
        std::byte* parts[std::size(sizes)];
        for (size_t i = 0; i < std::size(sizes); next += sizes[i++]) parts[i] = next;
        queries = parts[0];
        unpacked = parts[1];
        scores = reinterpret_cast<float*>(parts[2]);
        weights = parts[3];
        values = parts[4];
    }
};

// 16 numbers of `first` in bfloat16, then 16 of `second`.
inline __m512i round_both(Float first, Float second) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second.v, first.v));
}

// Queries times the factor, in bfloat16; zeros for heads that are not there.
inline void pack_latent_queries(const LatentRows& work, const LatentTiles& tiles) {
    const int64_t size = work.shape.head_dim;
    const Float factor = splat(work.factor);
    std::byte* to = tiles.queries;
    for (int64_t first = 0; first < work.heads; first += tile_rows) {
        for (int64_t d = 0; d < size; d += step_size, to += tile_bytes) {
            Float rows[tile_rows];
            for (int64_t h = 0; h < tile_rows; h++) {
                rows[h] = splat(0.0f);
                if (first + h >= work.num_heads) continue;
                const float* from = work.q + (first + h) * size + d;
                const Float high = d + width < size ? load(from + width) : splat(0.0f);
                rows[h] = {_mm512_castsi512_ps(round_both(load(from) * factor, high * factor))};
            }
            transpose(rows);
            for (int64_t i = 0; i < tile_rows; i++) store(reinterpret_cast<float*>(to + i * tile_stride), rows[i]);
        }
    }
}

// Finds the 16 rows of a tile: in place if they follow each other in bfloat16, else unpacked; zeros after the last.
inline void find_rows(const LatentRows& work, LatentTiles& tiles, int64_t first) {
    const LatentShape& shape = work.shape;
    const int64_t count = std::clamp<int64_t>(work.count - first, 0, tile_rows);
    const std::byte* const* from = work.rows + first;
    bool in_place = shape.format == LatentFormat::bf16 && shape.row_bytes() == tiles.row_bytes && count == tile_rows;
    for (int64_t t = 1; in_place && t < tile_rows; t++) in_place = from[t] == from[0] + t * tiles.row_bytes;
    std::byte* const to = tiles.unpacked + first * tiles.row_bytes;
    for (int64_t t = 0; t < tile_rows; t++) {
        std::byte* const row = to + t * tiles.row_bytes;
        tiles.rows[first + t] = in_place ? from[t] : row;
        if (in_place) continue;
        const int64_t written = t < count ? shape.head_dim * 2 : 0;
        if (written && shape.format == LatentFormat::bf16)
            std::memcpy(row, from[t], static_cast<size_t>(written));
        else if (written)
            unpack_latent(shape, from[t], reinterpret_cast<uint16_t*>(row));
        std::memset(row + written, 0, static_cast<size_t>(tiles.row_bytes - written));
    }
}

// Scores of two tiles of tokens, for all heads.
inline void score_latent_pair(const LatentRows& work, const LatentTiles& tiles, int64_t first) {
    const int64_t head_bytes = tiles.key_steps * tile_bytes;
    TileProduct product{tiles.rows[first],
                        tiles.queries,
                        tiles.row_bytes,
                        tiles.rows[first + tile_rows] - tiles.rows[first],
                        tile_stride,
                        head_bytes,
                        tile_bytes,
                        tiles.key_steps,
                        tiles.scores + first * work.heads,
                        work.heads * 4};
    int64_t head = 0;
    for (; head + 2 * tile_rows <= work.heads; head += 2 * tile_rows) {
        multiply_tiles<false, 2, 2>(product);
        product.b += 2 * head_bytes;
        product.sums += 2 * tile_rows;
    }
    if (head < work.heads) multiply_tiles<false, 2, 1>(product);
}

// Scores of 16 heads to weights: in place in float32, and as tiles in bfloat16.
inline void weigh_latent_tiles(const LatentRows& work, const LatentTiles& tiles, int64_t head) {
    float* const scores = tiles.scores + head;
    Float highest = splat(lowest);
    for (int64_t t = 0; t < work.count; t++) highest = max(load(scores + t * work.heads), highest);
    Float total = splat(0.0f);
    std::byte* to = tiles.weights + head / tile_rows * tiles.token_steps * tile_bytes;
    for (int64_t first = 0; first < work.count; first += step_size, to += tile_bytes) {
        Float rows[tile_rows];
        for (int64_t pair = 0; pair < tile_rows; pair++) {
            Float weights[2];
            for (int64_t i = 0; i < 2; i++) {
                const int64_t t = first + 2 * pair + i;
                weights[i] = splat(0.0f);
                if (t >= work.count) continue;
                weights[i] = fast_exp2(load(scores + t * work.heads) - highest);
                if (work.weights) store(work.weights + t * work.heads + head, weights[i]);
                total = total + weights[i];
            }
            rows[pair] = {_mm512_castsi512_ps(interleave_halves(round_both(weights[0], weights[1])))};
        }
        transpose(rows);
        for (int64_t h = 0; h < tile_rows; h++) store(reinterpret_cast<float*>(to + h * tile_stride), rows[h]);
    }
    store(work.max + head, highest);
    store(work.sum + head, total);
    for (int64_t start = 0; work.weights && start < work.count; start += latent_chunk)
        store(work.chunk_max + start / latent_chunk * work.heads + head, highest);
}

// Values of 32 tokens from channel d on, as 4 tiles of pairs.
inline void pair_values(const LatentTiles& tiles, int64_t step, int64_t d) {
    std::byte* const to = tiles.values + step * value_panels * tile_bytes;
    for (int64_t pair = 0; pair < tile_rows; pair++) {
        const std::byte* const* rows = tiles.rows + step * step_size + 2 * pair;
        for (int64_t panel = 0; panel < value_panels; panel++) {
            const int64_t offset = (d + panel * tile_rows) * 2;
            _mm512_store_si512(to + panel * tile_bytes + pair * tile_stride,
                               load_bf16_pairs<Bf16>(rows[0] + offset, rows[1] + offset));
        }
    }
}

// out [16 heads][64 channels] = weights times values
inline void sum_latent_tiles(const LatentTiles& tiles, const std::byte* weights, float* out, int64_t stride) {
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
    const std::byte* values = tiles.values;
    for (int64_t step = 0; step < tiles.token_steps; step++, weights += tile_bytes) {
        tile_load<4>(weights, tile_stride);
        tile_load<5>(values, tile_stride);
        tile_dot_bf16<0, 4, 5>();
        tile_load<6>(values + tile_bytes, tile_stride);
        tile_dot_bf16<1, 4, 6>();
        tile_load<7>(values + 2 * tile_bytes, tile_stride);
        tile_dot_bf16<2, 4, 7>();
        tile_load<5>(values + 3 * tile_bytes, tile_stride);
        tile_dot_bf16<3, 4, 5>();
        values += value_panels * tile_bytes;
    }
    tile_store<0>(out, stride);
    tile_store<1>(out + tile_rows, stride);
    tile_store<2>(out + 2 * tile_rows, stride);
    tile_store<3>(out + 3 * tile_rows, stride);
}

inline bool is_finite(const std::byte* row, int64_t size) {
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    for (int64_t d = 0; d < size; d += width) {
        const __m256i words =
            _mm256_and_si256(load_words(reinterpret_cast<const uint16_t*>(row) + d), _mm512_castsi512_si256(exponent));
        if (_mm256_cmpeq_epi16_mask(words, _mm512_castsi512_si256(exponent))) return false;
    }
    return true;
}

// A row with an infinity or NaN makes all channels of the heads that see it NaN, and adds zeros to all others. No score
// with such a row is finite, so the scores of one head find them.
inline void take_out_rows(const LatentRows& work, LatentTiles& tiles) {
    alignas(64) static constexpr std::byte zeros[1024 * 2] = {};
    for (int64_t t = 0; t < work.count; t++) {
        float* const scores = tiles.scores + t * work.heads;
        if (std::isfinite(scores[0]) || is_finite(tiles.rows[t], work.shape.head_dim)) continue;
        tiles.rows[t] = zeros;
        std::fill_n(scores, work.heads, std::numeric_limits<float>::quiet_NaN());
    }
}

inline void attend_latent_tiles(const LatentRows& work) {
    thread_local LatentTiles tiles;
    tiles.allocate(work);
    pack_latent_queries(work, tiles);
    const Tiles configured(whole_tiles());
    for (int64_t first = 0; first < work.count; first += 2 * tile_rows) {
        find_rows(work, tiles, first);
        find_rows(work, tiles, first + tile_rows);
        score_latent_pair(work, tiles, first);
    }
    take_out_rows(work, tiles);
    hide_latents(work, 0, work.count, tiles.scores);
    for (int64_t head = 0; head < work.heads; head += tile_rows) weigh_latent_tiles(work, tiles, head);
    for (int64_t d = 0; d < work.shape.value_dim; d += latent_step) {
        for (int64_t step = 0; step < tiles.token_steps; step++) pair_values(tiles, step, d);
        for (int64_t head = 0; head < work.heads; head += tile_rows)
            sum_latent_tiles(tiles, tiles.weights + head / tile_rows * tiles.token_steps * tile_bytes,
                             work.out + head * work.shape.value_dim + d, work.shape.value_dim * 4);
    }
}
