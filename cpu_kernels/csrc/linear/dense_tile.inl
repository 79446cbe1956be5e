// The product of panels with tokens, whatever a register does with a word of activations. For one instruction set and
// one kind of weight, `Dot` says that:
//
//     Sum                         registers of 32-bit sums of `rows` output rows
//     Weights, weights(p)         `rows` rows of a group in registers; p steps by vector_bytes
//     Word, word(p)               the activations that meet them, in every lane
//     add(sum, weights, word)
//     keep(sum)                   one register, whatever the sum is used for later; else large tiles get two for some
//     shapes                      tiles: tokens of 4, 2 and 1 panels side by side, 0 if that shape is not used
//
// and `Output` where a token's sums start and where they go. Included inside a target region, after <array>,
// <algorithm>, <utility> and "linear/dense.h".

template <class Dot>
constexpr int vectors = panel_rows / Dot::rows;  // registers of a group of one panel

// body(0), body(1), ...: loops over a tile. A loop that the compiler is asked to unroll it unrolls too late, and the
// sums of a large tile stay in memory.
template <int count, class Body>
[[gnu::always_inline]] static inline void unrolled(const Body& body) {
    const auto all = [&]<int... i>(std::integer_sequence<int, i...>)
                         __attribute__((always_inline)) { (body(std::integral_constant<int, i>{}), ...); };
    all(std::make_integer_sequence<int, count>{});
}
#define QK_UNROLLED(index) [&](auto index) __attribute__((always_inline))

// Every sum is one chain over ascending k, in every shape: a token's result does not depend on which others are in the
// batch.
//
// fetch: a panel that is brought to the L2 meanwhile, or null.
template <class Dot, int panels, int tokens, class Output>
static void multiply_tile(const Panels& weight, int64_t panel, const Input& x, int64_t token, const Output& output,
                          const std::byte* fetch) {
    constexpr int width = panels * vectors<Dot>;
    typename Dot::Sum sum[tokens][width];
    unrolled<tokens>(QK_UNROLLED(m) {
        const auto start = output.start(token + m);
        unrolled<width>(QK_UNROLLED(i) { sum[m][i] = start; });
    });

    const std::byte* w = weight.at(panel);
    // A base for three tokens, as an address may be base + 0, 1 or 2 times a stride: few enough to stay in registers.
    const auto stride = static_cast<int64_t>(x.token_bytes);
    const std::byte* base[(tokens + 2) / 3];
    unrolled<(tokens + 2) / 3>(QK_UNROLLED(i) { base[i] = x.tokens + (token + 3 * i) * stride; });
    for (int64_t group = 0; group < weight.num_groups; group++, w += Dot::vector_bytes * vectors<Dot>) {
        if (fetch) __builtin_prefetch(fetch + (w - weight.at(panel)), 0, 2);
        typename Dot::Weights weights[width];
        unrolled<width>(QK_UNROLLED(i) {
            weights[i] = Dot::weights(w + i / vectors<Dot> * weight.panel_bytes + i % vectors<Dot> * Dot::vector_bytes);
        });
        unrolled<tokens>(QK_UNROLLED(m) {
            const auto word = Dot::word(base[m / 3] + m % 3 * stride + group * 4);
            unrolled<width>(QK_UNROLLED(i) {
                sum[m][i] = Dot::add(sum[m][i], weights[i], word);
                Dot::keep(sum[m][i]);
            });
        });
    }
    unrolled<width>(QK_UNROLLED(i) {
        const int64_t row = panel * panel_rows + i * Dot::rows;
        const int64_t num_rows = std::clamp<int64_t>(weight.num_rows - row, 0, Dot::rows);
        unrolled<tokens>(QK_UNROLLED(m) { output.store(token + m, row, num_rows, sum[m][i]); });
    });
}
#undef QK_UNROLLED

template <class Dot, int panels, class Output>
class TileTable {
    using Tile = void (*)(const Panels&, int64_t panel, const Input&, int64_t token, const Output&, const std::byte*);
    static constexpr int most = Dot::shapes[panels == 4 ? 0 : panels == 2 ? 1 : 2];

    template <int... i>
    static constexpr std::array<Tile, most> make(std::integer_sequence<int, i...>) {
        return {multiply_tile<Dot, panels, i + 1, Output>...};
    }
    static constexpr std::array<Tile, most> tiles = make(std::make_integer_sequence<int, most>{});

public:
    // Whether a tile of this width takes all tokens at once; otherwise a narrower one takes more of them.
    static bool fits(int64_t num_tokens) { return most >= num_tokens; }

    // Tokens [first, end_token) in as few blocks as there may be, of sizes that differ by one. If there are several,
    // the first blocks each fetch one of the panels in [panel + panels, last) that come next: the processor's own
    // prefetching lets the stream run dry while all but the first multiply from the L2. A single block reads as fast as
    // memory gives.
    static void run(const Panels& weight, int64_t panel, int64_t last, const Input& x, int64_t first, int64_t end_token,
                    const Output& output) {
        const int64_t num_tokens = end_token - first, num_blocks = (num_tokens + most - 1) / most;
        for (int64_t i = 0; i < num_blocks; i++) {
            const int64_t begin = first + num_tokens * i / num_blocks;
            const int64_t end = first + num_tokens * (i + 1) / num_blocks;
            const int64_t next = panel + panels + i;
            const bool fetches = num_blocks > 1 && i < panels && next < last;
            tiles[end - begin - 1](weight, panel, x, begin, output, fetches ? weight.at(next) : nullptr);
        }
    }
};

// Activations that stay in the L2 while all panels pass: a quarter of 1 MiB, as the panels pass through it, too. Each
// span of tokens reads the panels again, so it has tokens enough to hide that: 96 are 8 tiles.
constexpr size_t span_bytes = 256 << 10;
constexpr int64_t fewest_span_tokens = 96;

template <class Dot, class Output>
static void multiply_span(const Panels& weight, int64_t begin, int64_t end, const Input& x, int64_t first, int64_t last,
                          const Output& output) {
    int64_t panel = begin;
    if constexpr (Dot::shapes[0] > 0)
        if (TileTable<Dot, 4, Output>::fits(last - first))
            for (; panel + 4 <= end; panel += 4)
                TileTable<Dot, 4, Output>::run(weight, panel, end, x, first, last, output);
    if constexpr (Dot::shapes[1] > 0)
        for (; panel + 2 <= end; panel += 2) TileTable<Dot, 2, Output>::run(weight, panel, end, x, first, last, output);
    for (; panel < end; panel++) TileTable<Dot, 1, Output>::run(weight, panel, end, x, first, last, output);
}

template <class Dot, class Output>
static void multiply_panels(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Output& output) {
    const int64_t most = std::max(fewest_span_tokens, static_cast<int64_t>(span_bytes / x.token_bytes));
    const int64_t num_spans = (x.num_tokens + most - 1) / most;
    for (int64_t i = 0; i < num_spans; i++)
        multiply_span<Dot>(weight, begin, end, x, x.num_tokens * i / num_spans, x.num_tokens * (i + 1) / num_spans,
                           output);
}
