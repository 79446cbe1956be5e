// Inputs and outputs of a tile, and the prefetch of the next stretch. Included after lanes.

// The bytes that are unpacked next, brought to the L2 meanwhile: some lines per step, of the panels in turn. More
// requests at once than the L1 keeps track of would hold up the tile's own loads.
template <int panels>
struct Fetch {
    const uint8_t *next[panels], *end[panels];
    int lines;  // a turn
    unsigned turn = 0;

    Fetch(const Stretch* stretch, int64_t num_turns) {
        for (int p = 0; p < panels; p++) {
            next[p] = stretch[p].next;
            end[p] = next[p] + stretch[p].next_bytes;
        }
        const int64_t own_turns = std::max<int64_t>(1, num_turns / panels),
                      most_lines = (stretch->next_bytes + 63) / 64;
        lines = static_cast<int>((most_lines + own_turns - 1) / own_turns);
    }
    // Always inlined: GCC takes a function that only prefetches for one without effect, and drops its calls.
    [[gnu::always_inline]] void operator()() {
        const unsigned p = turn++ % panels;
        for (int i = 0; i < lines && next[p] < end[p]; i++, next[p] += 64) __builtin_prefetch(next[p], 0, 2);
    }
};

template <int panels>
struct TileOf {
    const Stretch* stretch;  // [panels]
    const std::byte* x;
    size_t token_bytes;
    float* sums;  // [panels, panel_size], where the outputs are before
    int64_t panel_size;
    float* to;  // and after: sums or y
    int64_t to_token, to_panel;  // from one to the next there
    int row;  // of a panel's 16, the first that the vectors have

    const ActivationBlock& block(int m, int step) const {
        return *reinterpret_cast<const ActivationBlock*>(x + m * token_bytes + step * sizeof(ActivationBlock));
    }
    float* before(int m, int p) const { return sums + p * panel_size + m * panel_rows + row; }
    float* after(int m, int p) const { return to + p * to_panel + m * to_token + row; }
    // Its outputs remain where they are.
    void stay() { to = sums, to_token = panel_rows, to_panel = panel_size; }
    void skip(int64_t num_tokens) {
        x += num_tokens * token_bytes;
        sums += num_tokens * panel_rows;
        to += num_tokens * to_token;
    }
    Floats scale(int p, int i) const { return load(stretch[p].scale + i * panel_rows + row); }
    Floats minimum(int p, int i) const { return load(stretch[p].minimum + i * panel_rows + row); }
};
