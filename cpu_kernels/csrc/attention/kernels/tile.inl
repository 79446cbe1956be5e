// A chunk of a stretch, and its state in a tile of rows.
#ifndef QK_ATTENTION_ATTEND
#error "attention/kernels/tile.inl: attention/kernels/attend.inl includes this file"
#endif

constexpr float lowest = -std::numeric_limits<float>::infinity();

// Registers of tokens, or of channels, side by side in a tile: 8 chains hide the latency of a multiply-add (4 cycles,
// two a cycle) for a single row.
constexpr int max_vecs = 8;

constexpr int64_t cache_line = 64;

// Products of pairs need two multipliers per row next to the sums, so half as many sums are kept.
template <class Code, int rows>
constexpr int tile_vecs = std::clamp(tile_registers / (Code::is_dot ? 2 : 1) / rows, 1, max_vecs);

// At most chunk_tokens of a stretch; tokens are offsets into it.
struct Chunk {
    const Block* keys;
    const Block* values;
    const Block* next_keys;  // null: a whole chunk does not follow
    float* weights;          // null, or [rows, chunk_tokens]: the weights of each row are kept here,
    float* max;              // [rows]: and the maximum that they are relative to
};

// Codes that are needed soon are fetched while others are multiplied: of values the same part of the block whose keys
// are, and of the next keys that of the block whose values are. So the memory is busy all the time, never with more
// than a core can have underway. Into the L2, as two chunks fill an L1.
template <class Code>
inline void fetch(const Block& block, int64_t lane) {
    if (fetches_each_register || width * Code::lane_size >= cache_line || lane * Code::lane_size % cache_line == 0)
        __builtin_prefetch(block.codes + lane * Code::lane_size, 0, 2);
}

inline void fetch_blocks(const Layout& layout, const Block* blocks, int count) {
    const int64_t size = layout.block_bytes();
    for (int i = 0; i < count; i++)
        for (int64_t offset = 0; offset < size; offset += cache_line)
            __builtin_prefetch(blocks[i].codes + offset, 0, 2);
}

inline void fetch_scales(const Layout& layout, const Block* blocks, int count) {
    const int64_t size = layout.has_token_scales() ? layout.scale_bytes() : 0;
    for (int i = 0; i < count; i++)
        for (int64_t offset = 0; offset < size; offset += cache_line) __builtin_prefetch(blocks[i].scales + offset);
}

// Tokens of a chunk that a row sees, begin <= t < end.
struct Seen {
    int begin, end;
    bool any() const { return begin < end; }
};

// Queries times the scales of the channels, for each group of a chunk's tokens. The codes of keys are multiplied with
// them.
struct ChannelQueries {
    static constexpr int groups = chunk_tokens / group_tokens;
    alignas(64) int16_t codes[groups][max_tile][max_integer_head];
    float step[groups][max_tile];  // score = step * sum of codes times the key's + base
    float base[groups][max_tile];
};

// The state of a chunk in a tile.
struct Tile {
    alignas(64) float scores[max_tile][chunk_tokens];  // then weights
    // For products of pairs: weights times the values' scales, rounded, for each group that has scales of its
    // own; of integers whole multiples of `step`, and the sum of weights times minima.
    alignas(64) int16_t codes[max_groups][max_tile][chunk_tokens];
    float step[max_groups][max_tile], base[max_groups][max_tile];
    ChannelQueries channels;  // of kivi alone
    float correction[max_tile];  // factor of earlier sums by the rise of the maximum
    Seen seen[max_tile];
};

// The tokens that each row of a tile sees of `size` from token `first` on, and those that one row or more see.
inline Seen see(const Rows& rows, int row, int count, int64_t first, int64_t size, Tile& tile) {
    Seen any{chunk_tokens, 0};
    for (int r = 0; r < count; r++) {
        tile.seen[r] = {static_cast<int>(std::clamp<int64_t>(rows.begin[row + r] - first, 0, size)),
                        static_cast<int>(std::clamp<int64_t>(rows.end[row + r] - first, 0, size))};
        if (tile.seen[r].any()) any = {std::min(any.begin, tile.seen[r].begin), std::max(any.end, tile.seen[r].end)};
    }
    return any;
}

// The remaining factor of float8 codes, for the tokens from `lane` on.
inline Float float8_scale(const Layout& layout, const Block& block, int lane) {
    const Float unit = splat(code_unit(layout.format));
    return layout.has_token_scales() ? load(reinterpret_cast<const float*>(block.scales) + lane) * unit : unit;
}
