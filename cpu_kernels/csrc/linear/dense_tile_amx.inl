// The product of panels with tokens by tile instructions. 16 groups of a panel are a tile as stored, 16 rows of 64
// bytes, and so are 64 bytes of each of 16 tokens; rows and tokens are padded to whole tiles. `Dot` says
//
//     multiply<sums, x, weights>()    the tile instruction
//     sum_of(row, start)              a row of a tile of sums, for a token whose sums start there
//
// and `Output` is that of dense_tile.inl. Included inside a target region, after <algorithm>, <cstdint> and
// "linear/dense.h".
//
// A block is 32 tokens x 2 panels: 4 tiles of sums, 2 of activations and 2 of weights are all there are. It loads one
// tile per product, at 8 cycles of the 16 that the product takes, and begins a sum every fourth product: its latency is
// 52.

namespace {
#include "amx/tiles.inl"
}

constexpr int tile_rows = 16;  // tokens of a tile; of weights, groups
constexpr int tile_bytes = tile_rows * 64;
constexpr int tile_stride = 64;

template <int token_tiles>
static TileConfig config_of(int64_t num_tokens) {
    TileConfig config;
    for (int i = 0; i < token_tiles; i++) {
        const int64_t rows = std::min<int64_t>(tile_rows, num_tokens - i * tile_rows);
        config.set(2 * i, rows, tile_stride);
        config.set(2 * i + 1, rows, tile_stride);
        config.set(4 + i, rows, tile_stride);
    }
    config.set(6, tile_rows, tile_stride);
    config.set(7, tile_rows, tile_stride);
    return config;
}

// sums: [token_tiles][2][16 tokens][16 rows] of 4 bytes
template <class Dot, int token_tiles, int panels>
static void multiply_block(const Panels& weight, int64_t panel, const std::byte* x, int64_t token_bytes,
                           std::byte* sums) {
    tile_zero<0>();
    if constexpr (panels == 2) tile_zero<1>();
    if constexpr (token_tiles == 2) tile_zero<2>();
    if constexpr (token_tiles == 2 && panels == 2) tile_zero<3>();
    const std::byte* w = weight.at(panel);
    for (int64_t group = 0; group < weight.num_groups; group += tile_rows, w += tile_bytes, x += tile_stride) {
        tile_load<4>(x, token_bytes);
        if constexpr (token_tiles == 2) tile_load<5>(x + tile_rows * token_bytes, token_bytes);
        tile_load<6>(w, tile_stride);
        Dot::template multiply<0, 4, 6>();
        if constexpr (token_tiles == 2) Dot::template multiply<2, 5, 6>();
        if constexpr (panels == 2) {
            tile_load<7>(w + weight.panel_bytes, tile_stride);
            Dot::template multiply<1, 4, 7>();
            if constexpr (token_tiles == 2) Dot::template multiply<3, 5, 7>();
        }
    }
    tile_store<0>(sums, tile_stride);
    if constexpr (panels == 2) tile_store<1>(sums + tile_bytes, tile_stride);
    if constexpr (token_tiles == 2) tile_store<2>(sums + 2 * tile_bytes, tile_stride);
    if constexpr (token_tiles == 2 && panels == 2) tile_store<3>(sums + 3 * tile_bytes, tile_stride);
}

template <class Dot, class Output>
static void store_block(const std::byte* sums, int64_t num_rows, int64_t row, int64_t first, int64_t num_tokens,
                        int64_t panels, const Output& output) {
    for (int64_t p = 0; p < panels; p++, row += panel_rows) {
        const int64_t rows = std::clamp<int64_t>(num_rows - row, 0, panel_rows);
        for (int64_t m = 0; m < num_tokens; m++) {
            const std::byte* sum = sums + (m / tile_rows * 2 + p) * tile_bytes + m % tile_rows * tile_stride;
            output.store(first + m, row, rows, Dot::sum_of(sum, output.start(first + m)));
        }
    }
}

// A pair of panels with tokens [begin, end), of which each block takes `token_tiles` tiles, filled evenly.
template <class Dot, int token_tiles, class Output>
static void multiply_tokens(const Panels& weight, int64_t panel, int64_t panels, const Input& x, int64_t begin,
                            int64_t end, const Output& output) {
    const int64_t block_tokens = std::min<int64_t>(token_tiles * tile_rows, end - begin);
    const auto stride = static_cast<int64_t>(x.token_bytes);
    alignas(64) std::byte sums[4 * tile_bytes];
    const Tiles tiles(config_of<token_tiles>(block_tokens));
    for (int64_t token = begin; token < end; token += block_tokens) {
        const std::byte* tokens = x.tokens + token * stride;
        if (panels == 2)
            multiply_block<Dot, token_tiles, 2>(weight, panel, tokens, stride, sums);
        else
            multiply_block<Dot, token_tiles, 1>(weight, panel, tokens, stride, sums);
        store_block<Dot>(sums, weight.num_rows, panel * panel_rows, token, block_tokens, panels, output);
    }
}

// A pair of panels meets all tokens before the next one does: it comes from memory once, and then from the L2.
template <class Dot, class Output>
static void multiply_panels(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Output& output) {
    const int64_t whole = x.num_tokens / (2 * tile_rows) * (2 * tile_rows), rest = x.num_tokens - whole;
    for (int64_t panel = begin; panel < end; panel += 2) {
        const int64_t panels = std::min<int64_t>(2, end - panel);
        if (whole) multiply_tokens<Dot, 2>(weight, panel, panels, x, 0, whole, output);
        if (rest > tile_rows)
            multiply_tokens<Dot, 2>(weight, panel, panels, x, whole, x.num_tokens, output);
        else if (rest)
            multiply_tokens<Dot, 1>(weight, panel, panels, x, whole, x.num_tokens, output);
    }
}
