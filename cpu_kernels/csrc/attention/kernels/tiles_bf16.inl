// Prefill by tiles of bfloat16: many rows over a stretch of keys and values in f16, bf16, float8, int8 or int4.
//
//     scores [32 rows][128 tokens] = queries @ keys       16 x 16 x 32 per instruction, sums in float32
//     P      [32 rows][128 tokens] = 2^(score - max)      rounded to bfloat16, times the values' scales
//     out    [32 rows][D]         += P @ values
//
// The stretch becomes tiles once, which meet all rows: at 512 rows that is a tenth of the time. Queries are rounded to
// bfloat16, and keys and values of f16 and of integers too; bf16 and float8 are exact. A row's sums are the same chain for any number of
// rows: chunks begin at multiples of chunk_tokens, and tokens that it does not see add zeros.
//
// Zero times NaN is NaN, so values that are not finite are not in the tiles. They are added to the rows that see them.
#ifndef QK_ATTENTION_ATTEND
#error "attention/kernels/tiles_bf16.inl: include attention/kernels/attend.inl before this file"
#endif

constexpr int64_t tile_bytes = 1024;  // 16 rows of 64 bytes
constexpr int64_t tile_stride = 64;
constexpr int block_rows =
    2 * tile_rows;  // 2 x 2 tiles of sums, 2 of rows and 2 of tokens or channels: all 8 there are

// All tiles are whole: rows, channels and tokens are padded with zeros.
inline TileConfig whole_tiles() {
    TileConfig config;
    for (int tile = 0; tile < 8; tile++) config.set(tile, tile_rows, tile_stride);
    return config;
}

// An infinity or NaN among the values: the rows that see its token add it.
struct NotFinite {
    int64_t token, channel;
    float value;
};

// Words 2 j and 2 j + 1 of the result: word j of the lower and of the upper half.
inline __m512i interleave_halves(__m512i halves) {
    alignas(64) static constexpr uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_load_si512(order), halves);
}

// 16 numbers at `first` and 16 at `second` in bfloat16, as pairs.
template <class Code>
inline __m512i load_bf16_pairs(const std::byte* first, const std::byte* second) {
    const auto* low = reinterpret_cast<const uint16_t*>(first);
    const auto* high = reinterpret_cast<const uint16_t*>(second);
    if constexpr (Code::format == Format::bf16) {
        return interleave_halves(_mm512_inserti64x4(_mm512_castsi256_si512(load_words(low)), load_words(high), 1));
    } else {
        static_assert(Code::format == Format::f16);
        return interleave_halves(reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(load_f16(high).v, load_f16(low).v)));
    }
}

// The scales of integers in a block as floats: of a group of channels the 16 scales, then the 16 minima.
struct IntegerScales {
    alignas(64) float at[max_groups][2][block_tokens];

    IntegerScales(const Layout& layout, const std::byte* scales) {
        for (int64_t i = 0; i < layout.groups() * 2; i++)
            store(at[i / 2][i % 2], load_f16(reinterpret_cast<const uint16_t*>(scales) + i * block_tokens));
    }
};

// scale * code + minimum of the codes in the halves of each lane, in bfloat16. The product is exact, the sum is rounded.
inline __m512i decode_pairs(Int codes, Float low_scale, Float low_minimum, Float high_scale, Float high_minimum) {
    const Float low = fma(to_float(codes & 0xffffu), low_scale, low_minimum);
    const Float high = fma(to_float(codes >> 16), high_scale, high_minimum);
    return interleave_halves(reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high.v, low.v)));
}

// A block of 16 keys as tiles, one for each 32 channels: [16 pairs of channels][16 tokens][2].
template <class Code>
inline void unpack_keys(const Layout& layout, const Block& block, int64_t steps, std::byte* tiles) {
    const int64_t pairs = layout.head_dim / 2;
    const std::byte* const codes = block.codes;
    if constexpr (is_integer(Code::format)) {
        constexpr int words_a_lane = Code::elements / 2;
        const IntegerScales scales(layout, block.scales);
        const int64_t group_pairs = pairs / layout.groups();
        for (int64_t pair = 0; pair < pairs; pair += words_a_lane) {
            Int words[words_a_lane];
            Code::words(load_int(codes + pair / words_a_lane * block_tokens * lane_bytes), words);
            const Float scale = load(scales.at[pair / group_pairs][0]),
                        minimum = load(scales.at[pair / group_pairs][1]);
            for (int i = 0; i < words_a_lane; i++)
                _mm512_store_si512(tiles + (pair + i) * tile_stride,
                                   decode_pairs(words[i], scale, minimum, scale, minimum));
        }
    } else if constexpr (is_float8(Code::format)) {
        for (int64_t pair = 0; pair < pairs; pair += 2) {
            Int words[2];
            Code::words(load_int(codes + pair / 2 * block_tokens * lane_bytes), words);
            _mm512_store_si512(tiles + pair * tile_stride, words[0].v);
            _mm512_store_si512(tiles + (pair + 1) * tile_stride, words[1].v);
        }
    } else {
        constexpr int64_t row_bytes = block_tokens * 2;
        for (int64_t pair = 0; pair < pairs; pair++)
            _mm512_store_si512(tiles + pair * tile_stride,
                               load_bf16_pairs<Code>(codes + 2 * pair * row_bytes, codes + (2 * pair + 1) * row_bytes));
    }
    for (int64_t pair = pairs; pair < steps * tile_rows; pair++)
        _mm512_store_si512(tiles + pair * tile_stride, _mm512_setzero_si512());
}

// Takes values that are not finite out of a row of a tile: tokens t and t + 1, channels d .. d + 15.
[[gnu::noinline]] inline __m512i take_out(__m512i row, __mmask32 which, int64_t t, int64_t d,
                                          std::vector<NotFinite>& taken) {
    alignas(64) uint16_t words[32];
    _mm512_store_si512(words, row);
    for (int i = 0; i < 32; i++)
        if (which >> i & 1) taken.push_back({t + i % 2, d + i / 2, std::bit_cast<float>(uint32_t{words[i]} << 16)});
    return _mm512_maskz_mov_epi16(~which, row);
}

// A block of values as halves of tiles, [8 pairs of tokens][16 channels][2]; zeros for tokens that
// are not in `seen`, tokens of the block from `first` on.
template <class Code>
inline void unpack_values(const Layout& layout, const Block& block, Seen seen, int64_t first, std::byte* tiles,
                          std::vector<NotFinite>& taken) {
    const std::byte* const codes = block.codes;
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    const auto put = [&](__m512i row, int t, int64_t d) {
        const __mmask32 is_seen = (t >= seen.begin && t < seen.end ? 0x55555555u : 0) |
                                  (t + 1 >= seen.begin && t + 1 < seen.end ? 0xaaaaaaaau : 0);
        row = _mm512_maskz_mov_epi16(is_seen, row);
        const __mmask32 not_finite = _mm512_cmpeq_epi16_mask(_mm512_and_si512(row, exponent), exponent);
        if (not_finite) [[unlikely]]
            row = take_out(row, not_finite, first + t, d, taken);
        _mm512_store_si512(tiles + d / 16 * tile_bytes + t / 2 * tile_stride, row);
    };
    const int64_t size = layout.head_dim;
    if constexpr (is_integer(Code::format)) {
        constexpr int words_a_lane = Code::elements / 2;
        const IntegerScales scales(layout, block.scales);
        const int64_t group_size = size / layout.groups();
        for (int t = 0; t < block_tokens; t += Code::elements) {
            for (int64_t d = 0; d < size; d += 16) {
                Int words[words_a_lane];
                Code::words(load_int(codes + (t / Code::elements * size + d) * lane_bytes), words);
                const auto& [scale, minimum] = scales.at[d / group_size];
                for (int i = 0; i < words_a_lane; i++) {
                    const int low = t + 2 * i;
                    put(decode_pairs(words[i], splat(scale[low]), splat(minimum[low]), splat(scale[low + 1]),
                                     splat(minimum[low + 1])),
                        low, d);
                }
            }
        }
    } else if constexpr (is_float8(Code::format)) {
        for (int t = 0; t < block_tokens; t += 4) {
            for (int64_t d = 0; d < size; d += 16) {
                Int words[2];
                Code::words(load_int(codes + (t / 4 * size + d) * lane_bytes), words);
                put(words[0].v, t, d);
                put(words[1].v, t + 2, d);
            }
        }
    } else {
        for (int t = 0; t < block_tokens; t += 2)
            for (int64_t d = 0; d < size; d += 16)
                put(load_bf16_pairs<Code>(codes + (t * size + d) * 2, codes + ((t + 1) * size + d) * 2), t, d);
    }
}

// sums [row_tiles * 16][col_tiles * 16], rows of `sum_stride` bytes: a @ b. Tiles 16 i .. of a follow `a_next` bytes
// apart, and those of b `b_next`; step k takes the tiles a_step and b_step bytes on.
struct TileProduct {
    const std::byte *a, *b;
    int64_t a_stride, a_next, a_step, b_next, b_step, steps;
    float* sums;
    int64_t sum_stride;  // bytes
};

template <bool adds, int row_tiles, int col_tiles>
inline void multiply_tiles(const TileProduct& product) {
    std::byte* const sums = reinterpret_cast<std::byte*>(product.sums);
    const int64_t stride = product.sum_stride, below = tile_rows * stride;
    if constexpr (adds) {
        tile_load<0>(sums, stride);
        if constexpr (col_tiles == 2) tile_load<1>(sums + tile_stride, stride);
        if constexpr (row_tiles == 2) tile_load<2>(sums + below, stride);
        if constexpr (row_tiles == 2 && col_tiles == 2) tile_load<3>(sums + below + tile_stride, stride);
    } else {
        tile_zero<0>();
        if constexpr (col_tiles == 2) tile_zero<1>();
        if constexpr (row_tiles == 2) tile_zero<2>();
        if constexpr (row_tiles == 2 && col_tiles == 2) tile_zero<3>();
    }
    const std::byte *a = product.a, *b = product.b;
    for (int64_t step = 0; step < product.steps; step++, a += product.a_step, b += product.b_step) {
        tile_load<6>(b, tile_stride);
        tile_load<4>(a, product.a_stride);
        tile_dot_bf16<0, 4, 6>();
        if constexpr (row_tiles == 2) {
            tile_load<5>(a + product.a_next, product.a_stride);
            tile_dot_bf16<2, 5, 6>();
        }
        if constexpr (col_tiles == 2) {
            tile_load<7>(b + product.b_next, tile_stride);
            tile_dot_bf16<1, 4, 7>();
        }
        if constexpr (row_tiles == 2 && col_tiles == 2) tile_dot_bf16<3, 5, 7>();
    }
    tile_store<0>(sums, stride);
    if constexpr (col_tiles == 2) tile_store<1>(sums + tile_stride, stride);
    if constexpr (row_tiles == 2) tile_store<2>(sums + below, stride);
    if constexpr (row_tiles == 2 && col_tiles == 2) tile_store<3>(sums + below + tile_stride, stride);
}

// A stretch as tiles.
struct StretchTiles {
    int64_t steps, panels;  // tiles of 32 channels, of 16
    std::byte* keys;  // [blocks][steps]
    std::byte* values;  // [pairs of blocks][panels]
    float *key_scale, *value_scale;  // [tokens], where tokens have scales
    std::vector<NotFinite> taken;
};

template <class Code>
inline void unpack_stretch(const Layout& layout, const Stretch& stretch, Seen seen, bool has_values,
                           StretchTiles& tiles) {
    tiles.taken.clear();
    const bool has_scales = is_float8(Code::format) && layout.has_token_scales();
    for (int i = seen.begin / block_tokens; i * block_tokens < seen.end; i++) {
        unpack_keys<Code>(layout, stretch.keys[i], tiles.steps, tiles.keys + i * tiles.steps * tile_bytes);
        const auto read_scales = [&](const Block& block, float* to) {
            const Float scale = load(reinterpret_cast<const float*>(block.scales));
            store(to, choose_lanes(seen.begin - i * block_tokens, seen.end - i * block_tokens, scale, splat(0.0f)));
        };
        if (has_scales) read_scales(stretch.keys[i], tiles.key_scale + i * block_tokens);
        if (!has_values) continue;
        if (has_scales) read_scales(stretch.values[i], tiles.value_scale + i * block_tokens);
        std::byte* const to = tiles.values + i / 2 * tiles.panels * tile_bytes;
        unpack_values<Code>(layout, stretch.values[i], {seen.begin - i * block_tokens, seen.end - i * block_tokens},
                            i * block_tokens, to + i % 2 * (tile_bytes / 2), tiles.taken);
    }
    if (!has_values) return;
    const auto clear_half = [&](int i) {  // of a tile whose other block is there
        for (int64_t p = 0; p < tiles.panels; p++)
            std::memset(tiles.values + (i / 2 * tiles.panels + p) * tile_bytes + i % 2 * (tile_bytes / 2), 0,
                        tile_bytes / 2);
    };
    const int first = seen.begin / block_tokens, end = (seen.end + block_tokens - 1) / block_tokens;
    if (first % 2) clear_half(first - 1);
    if (end % 2) clear_half(end);
}

// ---- scores to weights

// 2^x, 0 for minus infinity and 1 for 0; NaN stays. Relative error at most 2^-22.4: 2^-23.5 of the polynomial (fitted to
// 2^g for 0 <= g < 1, relative error levelled) and roundings. Two instructions fewer than exp2.
inline Float fast_exp2(Float x) {
    const Float g = {_mm512_reduce_ps(x.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};  // x - floor(x)
    Float p = splat(1.8671308e-03f);
    p = fma(p, g, splat(9.0170287e-03f));
    p = fma(p, g, splat(5.5799914e-02f));
    p = fma(p, g, splat(2.4016445e-01f));
    p = fma(p, g, splat(6.9315131e-01f));
    p = fma(p, g, splat(1.0f));
    return {_mm512_scalef_ps(p.v, x.v)};  // times 2^floor(x)
}

// Lane i % 4 of the result: op over the lanes of rows[i].
template <class Op>
inline Float reduce_four(const Float (&rows)[4], const Op& op) {
    Float pairs[2];
    for (int i = 0; i < 2; i++)
        pairs[i] = op(Float{_mm512_unpacklo_ps(rows[2 * i].v, rows[2 * i + 1].v)},
                      Float{_mm512_unpackhi_ps(rows[2 * i].v, rows[2 * i + 1].v)});
    const __m512d low = _mm512_castps_pd(pairs[0].v), high = _mm512_castps_pd(pairs[1].v);
    Float all = op(Float{_mm512_castpd_ps(_mm512_unpacklo_pd(low, high))},
                   Float{_mm512_castpd_ps(_mm512_unpackhi_pd(low, high))});
    all = op(all, Float{_mm512_shuffle_f32x4(all.v, all.v, 0b01001110)});
    return op(all, Float{_mm512_shuffle_f32x4(all.v, all.v, 0b10110001)});
}

template <int lane>
inline Float splat_lane(Float fours) {
    return {_mm512_shuffle_ps(fours.v, fours.v, lane * 0b01010101)};
}

// Scores of four rows to weights in bfloat16, for the first `vecs` registers of a chunk. Writes the factors of
// earlier sums, and returns whether one is not 1.
// masked: not all rows see all tokens
template <bool has_scales, bool masked, int vecs>
inline bool weigh_four(const float* scores, const float* key_scale, const float* value_scale, const Seen* seen,
                       float* max_scores, float* sums, uint16_t* weights, float* corrections) {
    const auto lanes = [&](int r, int v, Float inside, Float outside) {
        return choose_lanes(seen[r].begin - v * width, seen[r].end - v * width, inside, outside);
    };
    const auto score_of = [&](int r, int v) {
        Float score = load(scores + r * chunk_tokens + v * width);
        if constexpr (has_scales) score = score * load(key_scale + v * width);
        if constexpr (masked) score = lanes(r, v, score, splat(lowest));
        return score;
    };
    Float rows[4];
    for (int r = 0; r < 4; r++) {
        rows[r] = splat(lowest);
        for (int v = 0; v < vecs; v++) rows[r] = max(score_of(r, v), rows[r]);
    }
    const Float highest = reduce_four(rows, [](Float a, Float b) { return max(a, b); });
    const Float before = {_mm512_broadcast_f32x4(_mm_loadu_ps(max_scores))};
    const Float after = max(highest, before);
    const __mmask16 rises = _mm512_cmp_ps_mask(before.v, after.v, _CMP_NEQ_UQ);
    const Float correction = select({rises}, fast_exp2(before - after), splat(1.0f));
    const Float shifts[4] = {splat_lane<0>(after), splat_lane<1>(after), splat_lane<2>(after), splat_lane<3>(after)};
    for (int r = 0; r < 4; r++) {
        Float total = splat(0.0f), pair[2];
        for (int v = 0; v < vecs; v++) {
            Float weight = fast_exp2(score_of(r, v) - shifts[r]);
            if constexpr (masked) weight = lanes(r, v, weight, splat(0.0f));  // NaN if the row sees no token yet
            total = total + weight;
            if constexpr (has_scales) weight = weight * load(value_scale + v * width);
            if constexpr (has_scales && masked) weight = lanes(r, v, weight, splat(0.0f));  // the scale may be NaN
            pair[v % 2] = weight;
            if (v % 2)
                _mm512_storeu_si512(weights + r * chunk_tokens + (v - 1) * width,
                                    reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(pair[1].v, pair[0].v)));
        }
        rows[r] = total;
    }
    const Float totals = reduce_four(rows, [](Float a, Float b) { return a + b; });
    const __m128 factors = _mm512_castps512_ps128(correction.v);
    _mm_storeu_ps(sums, _mm_fmadd_ps(_mm_loadu_ps(sums), factors, _mm512_castps512_ps128(totals.v)));
    _mm_storeu_ps(max_scores, _mm512_castps512_ps128(after.v));
    _mm_storeu_ps(corrections, factors);
    return rises != 0;
}

// ---- the memory of a thread

struct TileScratch {
    Scratch memory;
    StretchTiles tiles;
    std::byte* queries;  // [row tiles][steps]
    float* scores;  // [2][block_rows][chunk_tokens]
    uint16_t* weights;  // [2][block_rows][chunk_tokens]

    void allocate(const Layout& layout, int64_t num_rows, int64_t num_tokens) {
        const int64_t steps = (layout.head_dim + 31) / 32, panels = layout.head_dim / 16;
        const int64_t chunks = (num_tokens + chunk_tokens - 1) / chunk_tokens, blocks = chunks * chunk_blocks;
        const int64_t row_tiles = (num_rows + block_rows - 1) / block_rows * 2;
        const int64_t sizes[] = {blocks * steps * tile_bytes,      blocks / 2 * panels * tile_bytes,
                                 chunks * chunk_tokens * 4,        chunks * chunk_tokens * 4,
                                 row_tiles * steps * tile_bytes,   2 * block_rows * chunk_tokens * 4,
                                 2 * block_rows * chunk_tokens * 2};
        int64_t total = 0;
        for (const int64_t size : sizes) total += size;
        std::byte* next = memory.get(static_cast<size_t>(total));
        std::byte* parts[std::size(sizes)];
        for (size_t i = 0; i < std::size(sizes); next += sizes[i++]) parts[i] = next;
        tiles.steps = steps;
        tiles.panels = panels;
        tiles.keys = parts[0];
        tiles.values = parts[1];
        tiles.key_scale = reinterpret_cast<float*>(parts[2]);
        tiles.value_scale = reinterpret_cast<float*>(parts[3]);
        queries = parts[4];
        scores = reinterpret_cast<float*>(parts[5]);
        weights = reinterpret_cast<uint16_t*>(parts[6]);
    }
};

// Queries in bfloat16 as tiles of 16 rows and 32 channels.
inline void pack_queries(const Layout& layout, const Rows& rows, int64_t steps, std::byte* tiles) {
    for (int64_t row = 0; row < rows.count; row++) {
        std::byte* const to = tiles + row / tile_rows * steps * tile_bytes + row % tile_rows * tile_stride;
        const auto* from = reinterpret_cast<const uint16_t*>(rows.queries.codes + row * layout.head_dim);
        for (int64_t d = 0; d < layout.head_dim; d += 16)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + d / 32 * tile_bytes + d % 32 * 2),
                                load_words(from + d));
        if (layout.head_dim % 32) std::memset(to + (steps - 1) * tile_bytes + 32, 0, 32);
    }
    for (int64_t row = rows.count; row % tile_rows; row++)
        for (int64_t step = 0; step < steps; step++)
            std::memset(tiles + (row / tile_rows * steps + step) * tile_bytes + row % tile_rows * tile_stride, 0,
                        tile_stride);
}

// ---- one chunk

constexpr int pair_tokens = 2 * block_tokens;  // of two tiles of keys, and one of values

// Up to block_rows rows over one chunk.
struct Unit {
    int row, count;
    int start;  // of the chunk in the stretch
    Seen any;  // tokens of the chunk that one row or more see
    Seen seen[block_rows];
    float* scores;  // [block_rows][chunk_tokens]
    uint16_t* weights;  // [block_rows][chunk_tokens]
    float corrections[block_rows];
    bool corrects;

    int first_pair() const { return any.begin / pair_tokens; }
    int end_pair() const { return (any.end + pair_tokens - 1) / pair_tokens; }
};

inline Seen seen_by(const Rows& rows, int row, int64_t first, int size) {
    return {static_cast<int>(std::clamp<int64_t>(rows.begin[row] - first, 0, size)),
            static_cast<int>(std::clamp<int64_t>(rows.end[row] - first, 0, size))};
}

inline Seen seen_by_any(const Rows& rows, int row, int count, int64_t first, int size) {
    Seen any{size, 0};
    for (int r = 0; r < count; r++) {
        const Seen seen = seen_by(rows, row + r, first, size);
        if (seen.any()) any = {std::min(any.begin, seen.begin), std::max(any.end, seen.end)};
    }
    return any;
}

// The units of a stretch: blocks of rows, and for each the chunks that it sees, in their order.
class Units {
public:
    Units(const Stretch& stretch, const Rows& rows) : stretch_(stretch), rows_(rows) { find_chunks(); }

    bool next(Unit& unit) {
        for (; row_ < rows_.count; row_ += block_rows, find_chunks()) {
            for (; start_ < its_.end; start_ += chunk_tokens) {
                if (!take(unit)) continue;
                start_ += chunk_tokens;
                return true;
            }
        }
        return false;
    }

private:
    int num_tokens() const { return static_cast<int>(stretch_.num_tokens); }

    void find_chunks() {
        its_ = seen_by_any(rows_, row_, std::min(block_rows, rows_.count - row_), stretch_.first, num_tokens());
        start_ = its_.begin / chunk_tokens * chunk_tokens;
    }

    bool take(Unit& unit) const {
        unit.row = row_;
        unit.count = std::min(block_rows, rows_.count - row_);
        unit.start = start_;
        const int size = std::min(chunk_tokens, num_tokens() - start_);
        unit.any = {size, 0};
        for (int r = 0; r < block_rows; r++) {
            unit.seen[r] = r < unit.count ? seen_by(rows_, row_ + r, stretch_.first + start_, size) : Seen{0, 0};
            if (unit.seen[r].any())
                unit.any = {std::min(unit.any.begin, unit.seen[r].begin), std::max(unit.any.end, unit.seen[r].end)};
        }
        return unit.any.any();
    }

    const Stretch& stretch_;
    const Rows& rows_;
    int row_ = 0, start_ = 0;
    Seen its_{};
};

// Scores of the rows with two blocks of keys.
inline void score_pair(const TileScratch& scratch, const Unit& unit, int pair) {
    const StretchTiles& tiles = scratch.tiles;
    const int64_t row_bytes = tiles.steps * tile_bytes;
    const int64_t block = unit.start / block_tokens + 2 * pair;
    const TileProduct product{scratch.queries + unit.row / tile_rows * row_bytes,
                              tiles.keys + block * row_bytes,
                              tile_stride,
                              row_bytes,
                              tile_bytes,
                              row_bytes,
                              tile_bytes,
                              tiles.steps,
                              unit.scores + pair * pair_tokens,
                              chunk_tokens * 4};
    unit.count > tile_rows ? multiply_tiles<false, 2, 2>(product) : multiply_tiles<false, 1, 2>(product);
}

// Adds weights times values to the sums of 32 channels from panel `panel` on.
inline void sum_panels(const Layout& layout, const TileScratch& scratch, const Unit& unit, const Rows& rows,
                       int64_t panel) {
    const StretchTiles& tiles = scratch.tiles;
    const int64_t pair_bytes = tiles.panels * tile_bytes, first = unit.first_pair();
    const TileProduct product{reinterpret_cast<const std::byte*>(unit.weights + first * pair_tokens),
                              tiles.values + (unit.start / pair_tokens + first) * pair_bytes + panel * tile_bytes,
                              chunk_tokens * 2,
                              tile_rows * chunk_tokens * 2,
                              pair_tokens * 2,
                              tile_bytes,
                              pair_bytes,
                              unit.end_pair() - first,
                              rows.out + unit.row * layout.head_dim + panel * 16,
                              layout.head_dim * 4};
    const bool has_two_rows = unit.count > tile_rows, has_two_panels = panel + 1 < tiles.panels;
    if (has_two_panels)
        has_two_rows ? multiply_tiles<true, 2, 2>(product) : multiply_tiles<true, 1, 2>(product);
    else
        has_two_rows ? multiply_tiles<true, 2, 1>(product) : multiply_tiles<true, 1, 1>(product);
}

inline void add_not_finite(const Layout& layout, const TileScratch& scratch, const Unit& unit, const Rows& rows) {
    for (const NotFinite& value : scratch.tiles.taken) {
        const int64_t t = value.token - unit.start;
        for (int r = 0; r < unit.count; r++) {
            if (t < unit.seen[r].begin || t >= unit.seen[r].end) continue;
            const uint32_t weight = unit.weights[r * chunk_tokens + t];
            rows.out[(unit.row + r) * layout.head_dim + value.channel] +=
                std::bit_cast<float>(weight << 16) * value.value;
        }
    }
}

// Calls call<n>() for the least n of 2, 4, 6, 8 registers that hold the first `tokens` of a chunk.
template <class Call>
inline auto with_registers(int tokens, const Call& call) {
    static_assert(chunk_tokens == 8 * width);
    switch ((tokens + 2 * width - 1) / (2 * width)) {
        case 1: return call.template operator()<2>();
        case 2: return call.template operator()<4>();
        case 3: return call.template operator()<6>();
        default: return call.template operator()<8>();
    }
}

// Weights of four rows of a unit.
template <bool has_scales>
inline void weigh_rows(const TileScratch& scratch, Unit& unit, int first, const Rows& rows) {
    const Seen* seen = unit.seen + first;
    const auto weigh = [&]<bool masked, int vecs> {
        unit.corrects |= weigh_four<has_scales, masked, vecs>(
            unit.scores + first * chunk_tokens, scratch.tiles.key_scale + unit.start,
            scratch.tiles.value_scale + unit.start, seen, rows.max + unit.row + first, rows.sum + unit.row + first,
            unit.weights + first * chunk_tokens, unit.corrections + first);
    };
    bool all = true;
    for (int r = 0; r < 4; r++) all = all && seen[r].begin == 0 && seen[r].end == chunk_tokens;
    if (all) return weigh.template operator()<false, 8>();
    with_registers(unit.any.end, [&]<int vecs> { weigh.template operator()<true, vecs>(); });
}

// Earlier sums of the rows whose maximum rose, scaled down.
inline void correct_rows(const Layout& layout, const Unit& unit, const Rows& rows) {
    for (int r = 0; r < unit.count; r++)
        if (unit.corrections[r] != 1) correct(layout, unit.corrections[r], rows.out + (unit.row + r) * layout.head_dim);
}

// ---- a stretch

// While a chunk's scores become weights, the next chunk's scores are made and the last one's weights multiplied, a piece
// after each four rows: 7 % faster than one step after the other. Tile products and registers of 512 bits share a port
// (measured: one multiply-add per cycle instead of two while products run), so no more than waiting for tile loads and
// stores is hidden.
template <bool has_scales>
inline void attend_units(const Layout& layout, TileScratch& scratch, const Stretch& stretch, const Rows& rows) {
    Units units(stretch, rows);
    Unit ring[3];
    Unit *before = nullptr, *now = &ring[0], *next = &ring[1], *spare = &ring[2];
    int index = 0;
    const auto begin = [&](Unit& unit) {
        if (!units.next(unit)) return false;
        unit.scores = scratch.scores + index * block_rows * chunk_tokens;
        unit.weights = scratch.weights + index * block_rows * chunk_tokens;
        unit.corrects = false;
        index ^= 1;
        return true;
    };
    if (!begin(*now)) return;
    for (int pair = now->first_pair(); pair < now->end_pair(); pair++) score_pair(scratch, *now, pair);
    const auto num_sums = static_cast<int>((scratch.tiles.panels + 1) / 2);
    const auto finish = [&](const Unit& unit) {
        if (!scratch.tiles.taken.empty()) add_not_finite(layout, scratch, unit, rows);
    };
    for (bool has_next = true; has_next;) {
        has_next = begin(*next);
        const int first_pair = has_next ? next->first_pair() : 0, sums = before ? num_sums : 0;
        const int pieces = sums + (has_next ? next->end_pair() - first_pair : 0), fours = (now->count + 3) / 4;
        for (int four = 0, piece = 0; four < fours; four++) {
            weigh_rows<has_scales>(scratch, *now, 4 * four, rows);
            for (; piece * fours < pieces * (four + 1); piece++) {
                if (piece < sums)
                    sum_panels(layout, scratch, *before, rows, 2 * piece);
                else
                    score_pair(scratch, *next, first_pair + piece - sums);
            }
        }
        if (before) finish(*before);
        if (now->corrects) correct_rows(layout, *now, rows);
        Unit* const last = before ? before : spare;
        before = now;
        now = next;
        next = last;
    }
    for (int i = 0; i < num_sums; i++) sum_panels(layout, scratch, *before, rows, 2 * i);
    finish(*before);
}

// 2^(score - lse) of all rows, in their order, to the mass of their keys.
template <bool has_scales>
inline void add_mass(TileScratch& scratch, const Stretch& stretch, const Rows& rows) {
    Units units(stretch, rows);
    Unit unit;
    unit.scores = scratch.scores;
    while (units.next(unit)) {
        for (int pair = unit.first_pair(); pair < unit.end_pair(); pair++) score_pair(scratch, unit, pair);
        float* const mass = rows.mass + unit.start;
        for (int t = unit.any.begin / width * width; t < unit.any.end; t += width) {
            Float sum = load(mass + t);
            for (int r = 0; r < unit.count; r++) {
                Float score = load(unit.scores + r * chunk_tokens + t);
                if constexpr (has_scales) score = score * load(scratch.tiles.key_scale + unit.start + t);
                const Float power = min(splat(highest_power), score - splat(rows.max[unit.row + r]));
                sum = sum + where_seen(unit.seen[r], t, exp2(power));
            }
            store(mass + t, sum);
        }
    }
}

template <class Code, bool has_scales>
inline void attend_in_tiles(const Layout& layout, const Stretch& stretch, const Rows& rows) {
    thread_local TileScratch scratch;
    const Seen seen = seen_by_any(rows, 0, rows.count, stretch.first, static_cast<int>(stretch.num_tokens));
    if (!seen.any()) return;
    scratch.allocate(layout, rows.count, stretch.num_tokens);
    unpack_stretch<Code>(layout, stretch, seen, !rows.mass, scratch.tiles);
    pack_queries(layout, rows, scratch.tiles.steps, scratch.queries);
    const Tiles configured(whole_tiles());
    rows.mass ? add_mass<has_scales>(scratch, stretch, rows) : attend_units<has_scales>(layout, scratch, stretch, rows);
}
