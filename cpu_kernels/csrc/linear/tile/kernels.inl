// Many tokens with the unpacked stretches of one panel or two. Included after lanes.

namespace {

#include "linear/accumulate.inl"

// Tokens of a tile, by the registers at two panels:
//     AVX2          for 5 tokens 10 accumulators, 2 groups, the activations, a product and ones: 15 of 16. The outputs stay
//                   in the L1. Halves have two sums each: at 4 tokens Q6_K takes 0.97 of the time at 5.
//     AVX-VNNI      for 6 tokens 12 sums, 2 groups and the activations: 15 of 16. The outputs stay in the L1.
//     AVX-512       for 6 tokens 12 int32 and 12 float accumulators, 2 groups, the activations, and a scale or minimum: 28
//                   of 32. With a dot for each half of a step 4 tokens have 24 accumulators. As many at one panel, which
//                   only the last of an odd number is: tiles of 12 tokens were no faster there, and took half of the time
//                   to compile.
constexpr int tile_tokens(Sums sums, int) {
    if (this_isa == Isa::scalar) return 1;
    if (this_isa == Isa::avx2) return sums == Sums::half ? 4 : 5;
    if (this_isa == Isa::avx_vnni) return sums == Sums::half ? 3 : 6;
    return sums == Sums::half ? 4 : 6;
}

// The step:
#include "linear/tile/place.inl"
#ifdef QK_LINEAR_PAIRS
#include "linear/tile/pairs.inl"
#else
#include "linear/tile/dots.inl"
#endif

// Inlined, as is the next, so that the tile's members are in registers: read from memory in words of another size than
// they were written in, they would wait until every store before them, of outputs that miss the caches, is done.
template <Sums sums, int bits, int tokens, int panels>
[[gnu::always_inline]] inline void multiply_steps(const TileOf<panels>& tile, const TileInput<sums, bits, tokens>& x,
                                                  Fetch<panels>& fetch) {
    const int num_steps = tile.stretch->num_steps;
    Floats y[tokens][panels];
    for (int m = 0; m < tokens; m++)
        for (int p = 0; p < panels; p++) y[m][p] = load(tile.before(m, p));
    int step = 0;
    do {  // one at least: else the outputs would have a place in memory for the case that there is none
        fetch();
        add_step_to<sums, bits>(tile, x, step, y);
    } while (++step < num_steps);
    for (int m = 0; m < tokens; m++)
        for (int p = 0; p < panels; p++) store(tile.after(m, p), y[m][p]);
}

// The outputs wait in memory while a span's steps are summed in registers.
template <Sums sums, int bits, int tokens, int panels>
[[gnu::always_inline]] inline void multiply_spans(const TileOf<panels>& tile, const TileInput<sums, bits, tokens>& x,
                                                  Fetch<panels>& fetch) {
    const int num_steps = tile.stretch->num_steps, length = tile.stretch->span;
    for (int begin = 0, i = 0; begin < num_steps; begin += length, i++) {
        const int end = std::min(begin + length, num_steps);
        Floats span[tokens][panels];
        for (auto& token : span)
            for (auto& value : token) value = splat(0.0f);
        int step = begin;
        do {
            fetch();
            add_step_to_span<sums, bits>(tile, x, step, i, span);
        } while (++step < end);
        TileOf<panels> place = tile;
        if (end < num_steps) place.stay();
        for (int p = 0; p < panels; p++) {
            const Floats scale = tile.scale(p, i);
            for (int m = 0; m < tokens; m++)
                store(place.after(m, p), multiply_add(span[m][p], scale, load(tile.before(m, p))));
        }
    }
}

// Some tiles of equal height, the first of them at `tile`.
template <Sums sums, int bits, int tokens, int panels>
void multiply_tiles(TileOf<panels> tile, int64_t num_tiles, Fetch<panels>& fetch) {
    for (int64_t i = 0; i < num_tiles; i++) {
        const TileInput<sums, bits, tokens> x(tile);
        for (tile.row = 0; tile.row < panel_rows; tile.row += width) {
            if constexpr (is_span(sums))
                multiply_spans<sums, bits, tokens>(tile, x, fetch);
            else
                multiply_steps<sums, bits, tokens>(tile, x, fetch);
        }
        tile.skip(tokens);
    }
}

// [tokens - 1]
template <Sums sums, int bits, int panels, int... tokens>
constexpr std::array<void (*)(TileOf<panels>, int64_t, Fetch<panels>&), sizeof...(tokens)> tiles_of(
    std::integer_sequence<int, tokens...>) {
    return {multiply_tiles<sums, bits, tokens + 1, panels>...};
}

template <Sums sums, int bits, int panels>
void multiply_panels(const Stretch* stretch, const std::byte* x, size_t token_bytes, int64_t num_tokens,
                     const Outputs& out) {
    constexpr int most = tile_tokens(sums, panels);
    static constexpr auto tiles = tiles_of<sums, bits, panels>(std::make_integer_sequence<int, most>{});
    // As few tiles as there must be, of nearly equal height: a low one does not hide vpdpbusd's latency.
    const int64_t num_tiles = (num_tokens + most - 1) / most;
    const int64_t low = num_tokens / num_tiles, num_higher = num_tokens % num_tiles;
    Fetch<panels> fetch(stretch, num_tiles * stretch->num_steps);
    const int64_t panel_size = num_tokens * panel_rows;
    TileOf<panels> tile{stretch, x, token_bytes, out.sums, panel_size, out.y, out.y_stride, panel_rows, 0};
    if (!out.y) tile.stay();
    if (num_higher) tiles[low](tile, num_higher, fetch);
    tile.skip(num_higher * (low + 1));
    tiles[low - 1](tile, num_tiles - num_higher, fetch);
}

template <Sums sums, int bits>
Isa tile(std::span<const Stretch> stretches, const std::byte* x, size_t token_bytes, int64_t num_tokens,
         const Outputs& out) {
    static_assert(tile_panels == 2);
    if (stretches.size() == 2)
        multiply_panels<sums, bits, 2>(stretches.data(), x, token_bytes, num_tokens, out);
    else
        multiply_panels<sums, bits, 1>(stretches.data(), x, token_bytes, num_tokens, out);
    return this_isa;
}

}  // namespace

#define QK_DEFINE(name, sums, bits)                                                                                 \
    Isa tile_##name(std::span<const Stretch> stretches, const std::byte* x, size_t token_bytes, int64_t num_tokens, \
                    const Outputs& out) {                                                                           \
        return tile<Sums::sums, bits>(stretches, x, token_bytes, num_tokens, out);                                  \
    }
#ifdef QK_LINEAR_PAIRS
#define QK_DEFINE_WIDTH(sums, bits) QK_DEFINE(sums##_##bits, sums, bits)
QK_WIDTHS(QK_DEFINE_WIDTH)
#undef QK_DEFINE_WIDTH
#else
#define QK_DEFINE_ANY(sums) QK_DEFINE(sums, sums, 8)
QK_SUMS(QK_DEFINE_ANY)
#undef QK_DEFINE_ANY
#endif
#undef QK_DEFINE
