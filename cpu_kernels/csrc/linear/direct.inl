// One to eight tokens: codes are unpacked in registers and multiplied at once. Included after lanes, formats, and
// direct/dots.inl or direct/pairs.inl, which have the step.

// Steps of one or two tokens are shorter than the time in which their bytes arrive. Zen 4's own prefetching then reads
// memory at full speed, and requests in between lose a fourth of it. Zen 5's loses the stream at each header of a
// super-block: with requests Q4_K and Q6_K read twice as fast, and no format reads slower. Steps of more tokens are
// longer, and the stream would run dry between loads. 4 KiB are 14 steps of 4 bits, 0.3 us of them at 4 tokens: three
// times memory's latency. One token needs half the time for them.
//
// On Granite Rapids memory takes 170 ns. Requests 4 KiB ahead, to the L2, give decode of a 1.1B model 1.3 times the speed
// in q4_0 and q4_k_m, and 1.03 times in q8_0; requests to the L1 1.1, 1.2 and 1.06 times.
template <int tokens>
[[gnu::always_inline]] inline void fetch_ahead(const uint8_t* from, int bytes, ReadAhead ahead) {
    constexpr int distance = tokens > 2 ? 4096 : 8192;
    if (ahead == ReadAhead::to_l1)
        for (int i = 0; i < bytes; i += 64) __builtin_prefetch(from + distance + i);
    if (ahead == ReadAhead::to_l2)
        for (int i = 0; i < bytes; i += 64) __builtin_prefetch(from + 4096 + i, 0, 2);
}

template <class Format, int tokens>
void multiply_direct(const uint8_t* block, const BlockShape& shape, int num_steps, const std::byte* x,
                     size_t token_bytes, float* out) {
    const ReadAhead ahead = tokens > 2 ? ReadAhead::to_l1 : read_ahead();
    constexpr Sums sums = Format::sums;
    constexpr int vectors = panel_rows / width;
    constexpr int most_steps = is_span(sums) ? 1 : Format::block_steps;  // that have scales of their own
    Floats y[vectors][tokens];
    for (int m = 0; m < tokens; m++)
        for (int v = 0; v < vectors; v++) y[v][m] = load(out + m * panel_rows + v * width);
    for (int first = 0; first < num_steps; first += shape.steps, block += shape.bytes(shape.steps)) {
        const int steps = is_span(sums) ? std::min(shape.steps, num_steps - first) : Format::block_steps;
        // Steps are the outer loop, so that memory is read without a pause: a second pass over the block would find all
        // of it in the L1.
        Floats scale[vectors][most_steps * scales_per_step(sums)];
        Floats minimum[vectors][most_steps * minima_per_step(sums) + 1], span[vectors][tokens];
        for (int v = 0; v < vectors; v++) {
            Format::scales(block, v * width, steps, scale[v], minimum[v]);
            for (auto& value : span[v]) value = splat(0.0f);
        }
        const uint8_t* from = block + Format::header_bytes;
        for (int s = 0; s < steps; s++, from += Format::step_bytes) {
            fetch_ahead<tokens>(from, Format::step_bytes, ahead);
            const int own = is_span(sums) ? 0 : s;
            for (int v = 0; v < vectors; v++)
                multiply_step<Format, tokens>(block, from, v * width, s, scale[v] + own * scales_per_step(sums),
                                              minimum[v] + own * minima_per_step(sums),
                                              x + (first + s) * sizeof(ActivationBlock), token_bytes, y[v], span[v]);
        }
        if constexpr (is_span(sums))
            for (int v = 0; v < vectors; v++)
                for (int m = 0; m < tokens; m++) y[v][m] = multiply_add(span[v][m], *scale[v], y[v][m]);
    }
    for (int m = 0; m < tokens; m++)
        for (int v = 0; v < vectors; v++) store(out + m * panel_rows + v * width, y[v][m]);
}

// [tokens - 1]
template <class Format, int... tokens>
constexpr std::array<void (*)(const uint8_t*, const BlockShape&, int, const std::byte*, size_t, float*),
                     sizeof...(tokens)>
directs_of(std::integer_sequence<int, tokens...>) {
    return {multiply_direct<Format, tokens + 1>...};
}

template <class Format>
Isa direct(const uint8_t* stretch, const BlockShape& shape, int num_steps, const std::byte* x, size_t token_bytes,
           int num_tokens, float* y) {
    static constexpr auto directs = directs_of<Format>(std::make_integer_sequence<int, tokens_at_once>{});
    for (int m = 0; m < num_tokens; m += tokens_at_once) {
        const int count = std::min(tokens_at_once, num_tokens - m);
        directs[count - 1](stretch, shape, num_steps, x + m * token_bytes, token_bytes, y + m * panel_rows);
    }
    return this_isa;
}
