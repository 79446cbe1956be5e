// One to eight tokens: codes are unpacked in registers and multiplied at once. Included after lanes, formats, and
// direct/dots.inl or direct/pairs.inl, which have the step.

// With one token or two a step takes less time than its bytes, and the processor's own prefetching reads memory at its
// full speed: others asked for in between lose it a fourth of that. With more a step takes longer, and the stream would
// run dry between loads. 4 KiB are 14 steps of 4 bits, 0.3 us of them at 4 tokens: three times memory's latency.
inline void fetch_ahead(const uint8_t* from, int bytes) {
    constexpr int distance = 4096;
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(from + distance + i);
}

template <class Format, int tokens>
void multiply_direct(const uint8_t* block, const BlockShape& shape, int num_steps, const std::byte* x,
                     size_t token_bytes, float* out) {
    constexpr Sums sums = Format::sums;
    constexpr int vectors = panel_rows / width;
    constexpr int most_steps = is_span(sums) ? 1 : Format::block_steps;  // that have scales of their own
    Floats y[vectors][tokens];
    for (int m = 0; m < tokens; m++)
        for (int v = 0; v < vectors; v++) y[v][m] = load(out + m * panel_rows + v * width);
    for (int first = 0; first < num_steps; first += shape.steps, block += shape.bytes(shape.steps)) {
        const int steps = is_span(sums) ? std::min(shape.steps, num_steps - first) : Format::block_steps;
        for (int v = 0; v < vectors; v++) {
            const int row = v * width;
            Floats scale[most_steps * scales_per_step(sums)], minimum[most_steps * minima_per_step(sums) + 1];
            Format::scales(block, row, steps, scale, minimum);
            Floats span[tokens];
            for (auto& value : span) value = splat(0.0f);
            const uint8_t* from = block + Format::header_bytes;
            for (int s = 0; s < steps; s++, from += Format::bits * step_bytes_per_bit) {
                if constexpr (tokens > 2) fetch_ahead(from, Format::bits * step_bytes_per_bit);
                const int own = is_span(sums) ? 0 : s;
                multiply_step<Format, tokens>(block, from, row, s, scale + own * scales_per_step(sums),
                                              minimum + own * minima_per_step(sums),
                                              x + (first + s) * sizeof(ActivationBlock), token_bytes, y[v], span);
            }
            if constexpr (is_span(sums))
                for (int m = 0; m < tokens; m++) y[v][m] = multiply_add(span[m], *scale, y[v][m]);
        }
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
