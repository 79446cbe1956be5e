// The product of panels with tokens by tile instructions. 32 or 64 k of 16 rows of a weight are a tile of 1 KiB, as are
// those of 16 tokens (tile_rows.h). `Dot` says
//
//     multiply<sums, x, weights>()    the tile instruction
//     sum_of(row, start)              a row of a tile of sums, for a token whose sums start there
//
// `Weights` makes the tiles of a weight, some of them while others are multiplied:
//
//     count_at(k)                     tiles of K from k on that it makes at once, of each panel
//     begin(panel, panels, k, count)  begins with the tiles [k, k + count) of one panel or two
//     num_units()                     the work that has been begun
//     make_unit()                     does one of these units
//     tiles()                         the complete TilePanels; valid until the tiles after the next are begun
//     bytes(panel, k, count)          memory that `begin` or the first product reads of a panel, to be fetched ahead
//
// and `Output` is that of dense_tile.inl, or, if two panels become one result, has
//
//     store_pair(token, panel, first, second)     sums of panels `panel`, which is even, and `panel` + 1
//
// Included inside a target region, after <algorithm>, <span>, "linear/tile_rows.h" and "scratch.h".
//
// Schedule. 4 tiles of sums, 2 of activations and 2 of weights are all there are, so a block is 32 tokens x 2 panels: it
// loads one tile per product. 16 tiles of K of two panels, 32 KiB, stay in the L1 while they meet all tokens, whose tiles
// stream from the L2 past the L1: 512 bytes per product. Then the next two panels meet the same activations, up to
// panels_at_once, and their sums wait in the L2 for the next 16 tiles of K: another 128 bytes per product. Measured on
// Granite Rapids in loops with random numbers, in ns per product:
//
//     products alone                                                       5.0
//     and activations from the L2                                          5.8
//     and sums from and to the L2, 8 tiles of K                            8.7
//     the same, with the next sums fetched to the L1                       8.2
//     the same with 16 tiles of K, which activations push out of the L1     9.4
//     the same with activations that pass the L1 by                        6.5    this schedule
//     1 x 4 tiles, 8 of K: half the activations, twice the weights         9.5
//
// A whole product of 8192 x 2048 with 512 tokens takes 12.5 ns on a core; each part was left out to measure it:
//
//     products alone, all tiles in the L1          5.6
//     activations from the L2                      1.0
//     sums from and to the L2                      0.8
//     bfloat16 weights from memory                 1.2
//     outputs to memory, rows 32 KiB apart         2.6
//
// They add up to less than the whole, since all wait for the same line buffers. Stores that pass the caches by take 1.4
// off a product alone, but the next step then reads from memory: a prompt of a whole model took 4 % longer.
//
// All else is done between two tiles of K, while the tile unit multiplies: unpacking of the next weights, storing of the
// block before (its sums go through memory, and a tile store is not forwarded to loads), and fetching.

namespace {
#include "simd/tiles.inl"
}

// 512 tokens of 32 panels are 1 MiB of sums. They share the L2 with a block of activations, 512 KiB, which comes from the
// L3 once for all of these panels.
constexpr int64_t panels_at_once = tile_panels_at_once;
constexpr int64_t pair_tokens = 2 * tile_rows;
constexpr int64_t sums_bytes = 4 * tile_bytes;  // of a block

// Tile i of panel p at `at + p * stride + i * tile_bytes`.
struct TilePanels {
    const std::byte* at;
    int64_t stride;
};

inline TileConfig full_tiles() {
    TileConfig config;
    for (int i = 0; i < 8; i++) config.set(i, tile_rows, tile_row_bytes);
    return config;
}

// sums: [token_tiles][2][16 tokens][16 rows] of 4 bytes; before: null for zeros. meanwhile(i): after tile i of K
template <class Dot, int token_tiles, int panels, class Meanwhile>
[[gnu::always_inline]] inline void multiply_block(const TilePanels& weights, const std::byte* x, int64_t num_tiles,
                                                  const std::byte* before, std::byte* after,
                                                  const Meanwhile& meanwhile) {
    constexpr bool two_tokens = token_tiles == 2, two_panels = panels == 2;
    if (before) {
        tile_load<0>(before, tile_row_bytes);
        if constexpr (two_panels) tile_load<1>(before + tile_bytes, tile_row_bytes);
        if constexpr (two_tokens) tile_load<2>(before + 2 * tile_bytes, tile_row_bytes);
        if constexpr (two_tokens && two_panels) tile_load<3>(before + 3 * tile_bytes, tile_row_bytes);
    } else {
        tile_zero<0>();
        if constexpr (two_panels) tile_zero<1>();
        if constexpr (two_tokens) tile_zero<2>();
        if constexpr (two_tokens && two_panels) tile_zero<3>();
    }
    const std::byte* w = weights.at;
    for (int64_t i = 0; i < num_tiles; i++, x += tile_bytes, w += tile_bytes) {
        tile_load_once<4>(x, tile_row_bytes);
        tile_load<6>(w, tile_row_bytes);
        Dot::template multiply<0, 4, 6>();
        if constexpr (two_panels) {
            tile_load<7>(w + weights.stride, tile_row_bytes);
            Dot::template multiply<1, 4, 7>();
        }
        if constexpr (two_tokens) {
            tile_load_once<5>(x + k_block_bytes, tile_row_bytes);
            Dot::template multiply<2, 5, 6>();
            if constexpr (two_panels) Dot::template multiply<3, 5, 7>();
        }
        meanwhile(i);
    }
    tile_store<0>(after, tile_row_bytes);
    if constexpr (two_panels) tile_store<1>(after + tile_bytes, tile_row_bytes);
    if constexpr (two_tokens) tile_store<2>(after + 2 * tile_bytes, tile_row_bytes);
    if constexpr (two_tokens && two_panels) tile_store<3>(after + 3 * tile_bytes, tile_row_bytes);
}

// Cache lines to be fetched to the L2, of up to two places.
class Lines {
public:
    void add(const std::byte* at, int64_t size) {
        places_[num_places_++] = {at, (size + 63) / 64};
        total_ += (size + 63) / 64;
    }
    int64_t total() const { return total_; }
    [[gnu::always_inline]] void fetch_next() {
        if (done_ == places_[place_].count) place_++, done_ = 0;
        __builtin_prefetch(places_[place_].at + done_++ * 64, 0, 2);
    }

private:
    struct Run {
        const std::byte* at;
        int64_t count;
    };
    Run places_[2] = {};
    int num_places_ = 0, place_ = 0;
    int64_t total_ = 0, done_ = 0;
};

// `total` units of work, spread evenly over a number of slots.
class Spread {
public:
    Spread(int64_t total, int64_t slots) : total_(total), slots_(slots) {}

    // Calls work(i) for the units of the next slot.
    template <class Work>
    [[gnu::always_inline]] void next(const Work& work) {
        for (due_ += total_; due_ >= slots_ && done_ < total_; due_ -= slots_) work(done_++);
    }
    template <class Work>
    void rest(const Work& work) {
        while (done_ < total_) work(done_++);
    }

private:
    int64_t total_, slots_, due_ = 0, done_ = 0;
};

// Panels [begin, end) with tokens in tiles.
template <class Dot, class Weights, class Output>
class TileProduct {
public:
    TileProduct(Weights& weights, int64_t num_rows, int64_t num_tiles, const Input& x, const Output& output)
        : weights_(weights),
          num_rows_(num_rows),
          num_tiles_(num_tiles),
          num_blocks_((x.num_tokens + pair_tokens - 1) / pair_tokens),
          x_(x),
          output_(output) {}

    void run(int64_t begin, int64_t end) {
        if (x_.num_tokens == 0 || begin == end) return;
        thread_local Scratch scratch;
        const int64_t pairs = (std::min(end - begin, panels_at_once) + 1) / 2;
        // Whole huge pages, which a Buffer asks for from 2 MiB on.
        std::byte* const sums =
            scratch.get(static_cast<size_t>(std::max(pairs * num_blocks_ * sums_bytes, int64_t{2} << 20)));
        const Tiles tiles(full_tiles());
        Part part{begin, 0, end, begin};
        prepare(part);
        Spread making(weights_.num_units(), 1);
        while (part.panel < end) {
            making.rest([&](int64_t) { weights_.make_unit(); });
            const TilePanels made = weights_.tiles();
            const Part next = after(part);
            if (next.panel < end) prepare(next);
            const int64_t slots = num_blocks_ * count_of(part);
            making = Spread(next.panel < end ? weights_.num_units() : 0, slots);
            lines_ = lines_for(part, next);
            fetching_ = Spread(lines_.total(), slots);
            std::byte* const own = sums + (part.panel - part.first) / 2 * num_blocks_ * sums_bytes;
            if (panels_of(part) == 2)
                multiply<2>(part, made, making, own);
            else
                multiply<1>(part, made, making, own);
            part = next;
        }
        for (int64_t m = 0; m < pending_.tokens; m++) store_row(m);
    }

private:
    // One panel or two with some tiles of K; `first` is the first of the panels that meet the same activations in turn.
    struct Part { int64_t panel, k, end, first; };
    int64_t count_of(const Part& part) const { return weights_.count_at(part.k); }
    static int64_t last_of(const Part& part) { return std::min(part.first + panels_at_once, part.end); }
    static int64_t panels_of(const Part& part) { return std::min<int64_t>(2, last_of(part) - part.panel); }

    Part after(const Part& part) const {
        if (part.panel + 2 < last_of(part)) return {part.panel + 2, part.k, part.end, part.first};
        const int64_t k = part.k + count_of(part);
        if (k < num_tiles_) return {part.first, k, part.end, part.first};
        return {last_of(part), 0, part.end, last_of(part)};
    }

    // The weights after the next. Not the activations: they follow each other in memory, so the processor itself fetches
    // them, and more requests than its few can wait for hold up the loads of tiles. 5 % slower on Granite Rapids.
    Lines lines_for(const Part& part, const Part& next) const {
        Lines lines;
        if (next.panel >= part.end) return lines;
        const Part later = after(next);
        for (int64_t p = 0; later.panel < part.end && p < panels_of(later); p++) {
            const std::span<const std::byte> bytes = weights_.bytes(later.panel + p, later.k, count_of(later));
            lines.add(bytes.data(), static_cast<int64_t>(bytes.size()));
        }
        return lines;
    }

    void prepare(const Part& part) { weights_.begin(part.panel, panels_of(part), part.k, count_of(part)); }

    // With all tokens, in runs of tiles of K that are side by side in a block of activations.
    template <int panels>
    void multiply(const Part& part, TilePanels weights, Spread& making, std::byte* sums) {
        const int64_t end = part.k + count_of(part);
        for (int64_t k = part.k, count; k < end; k += count) {
            count = std::min(k_block_tiles - k % k_block_tiles, end - k);
            multiply_run<panels>(part.panel, weights, k, count, making, sums);
            weights.at += count * tile_bytes;
        }
    }

    template <int panels>
    void multiply_run(int64_t panel, const TilePanels& weights, int64_t k, int64_t count, Spread& making,
                      std::byte* sums) {
        const bool begins = k == 0, ends = k + count == num_tiles_;
        const std::byte* x = x_.tokens + k / k_block_tiles * x_.token_bytes + k % k_block_tiles * tile_bytes;
        for (int64_t i = 0; i < num_blocks_; i++, sums += sums_bytes, x += 2 * k_block_bytes) {
            const int64_t token = i * pair_tokens, tokens = std::min(x_.num_tokens - token, pair_tokens);
            Spread storing(pending_.tokens, count);
            const std::byte* const before = begins ? nullptr : sums;
            std::byte* const own = own_[i % 2];
            const auto meanwhile = [&](int64_t tile) __attribute__((always_inline)) {
                if (before && tile < 8) fetch_sums(before + sums_bytes, tile);
                making.next([&](int64_t) { weights_.make_unit(); });
                fetching_.next([&](int64_t) { lines_.fetch_next(); });
                storing.next([&](int64_t m) { store_row(m); });
            };
            if (tokens > tile_rows)
                multiply_block<Dot, 2, panels>(weights, x, count, before, ends ? own : sums, meanwhile);
            else
                multiply_block<Dot, 1, panels>(weights, x, count, before, ends ? own : sums, meanwhile);
            storing.rest([&](int64_t m) { store_row(m); });
            pending_ = {own, panel, panels, token, ends ? tokens : 0};
        }
    }

    // Sums that are added to next, from the L2 to the L1.
    [[gnu::always_inline]] static void fetch_sums(const std::byte* sums, int64_t part) {
        constexpr int64_t part_bytes = sums_bytes / 8;
        for (int64_t i = 0; i < part_bytes; i += 64) __builtin_prefetch(sums + part * part_bytes + i, 1, 3);
    }

    // Token m of the block that waits to be stored.
    [[gnu::always_inline]] void store_row(int64_t m) const {
        const std::byte* sum = pending_.sums + m / tile_rows * 2 * tile_bytes + m % tile_rows * tile_row_bytes;
        const int64_t token = pending_.token + m;
        if constexpr (requires { &Output::store_pair; }) {
            output_.store_pair(token, pending_.panel, Dot::sum_of(sum, 0), Dot::sum_of(sum + tile_bytes, 0));
        } else {
            for (int64_t p = 0; p < pending_.panels; p++) {
                const int64_t row = (pending_.panel + p) * panel_rows;
                const int64_t rows = std::clamp<int64_t>(num_rows_ - row, 0, panel_rows);
                output_.store(token, row, rows, Dot::sum_of(sum + p * tile_bytes, output_.start(token)));
            }
        }
    }

    // A block whose sums are complete, in own_.
    struct Pending {
        const std::byte* sums;
        int64_t panel, panels, token, tokens;
    };

    Weights& weights_;
    int64_t num_rows_, num_tiles_, num_blocks_;
    const Input& x_;
    const Output& output_;
    Pending pending_{};
    Lines lines_;
    Spread fetching_{0, 1};
    alignas(64) std::byte own_[2][sums_bytes];
};

// The panels of a weight that is multiplied as stored: 16 groups of a panel are a tile.
class StoredTiles {
public:
    explicit StoredTiles(const Panels& panels) : panels_(panels) {}

    int64_t num_tiles() const { return panels_.num_groups / tile_rows; }
    int64_t count_at(int64_t k) const { return std::min(k_block_tiles, num_tiles() - k); }
    void begin(int64_t panel, int64_t, int64_t k, int64_t) { at_ = panels_.at(panel) + k * tile_bytes; }
    int64_t num_units() const { return 0; }
    void make_unit() {}
    TilePanels tiles() const { return {at_, panels_.panel_bytes}; }
    std::span<const std::byte> bytes(int64_t panel, int64_t k, int64_t count) const {
        return {panels_.at(panel) + k * tile_bytes, static_cast<size_t>(count * tile_bytes)};
    }

private:
    const Panels& panels_;
    const std::byte* at_ = nullptr;
};
