// One to eight tokens: codes are unpacked in registers and multiplied at once. Included after lanes and formats.
//
// Of T tokens a step takes 8 T vpdpbusd and 2 T (with minima 3 T or 4 T) multiplies and FMAs, and some 20 operations
// that unpack; one token needs 28 of the 55 cycles in which its 288 bytes (Q4_0) arrive at 18 GB/s a core. Eight
// outputs, eight spans, eight vectors of codes and a sum take 25 of 32 registers, and 64 vpdpbusd, with a load of 4
// activations each, hide what unpacks.

template <class Format, int tokens>
inline void multiply_step(const uint8_t* block, const uint8_t* from, int row, int step, const Floats* scale,
                          const Floats* minimum, const std::byte* x, size_t token_bytes, Floats* y, Floats* span) {
    constexpr Sums sums = Format::sums;
    constexpr int num_dots = scales_per_step(sums), groups = step_groups / num_dots;
    Bytes codes[step_groups];
    Format::codes(block, from, row, step, codes);
    for (int m = 0; m < tokens; m++) {
        const auto& x_block = *reinterpret_cast<const ActivationBlock*>(x + m * token_bytes);
        Ints sum[num_dots];
        for (int h = 0; h < num_dots; h++) {
            sum[h] = !is_biased(sums) ? zero_ints() : bias(num_dots == 2 ? x_block.offset_half[h] : x_block.offset);
            for (int g = 0; g < groups; g++)
                sum[h] = dot<is_biased(sums)>(sum[h], codes[h * groups + g], four_codes(x_block, h * groups + g));
        }
        if constexpr (is_span(sums)) {
            span[m] = multiply_add(to_floats(sum[0]), splat(x_block.scale), span[m]);
            if constexpr (sums == Sums::span_zero) span[m] = add_minimum<sums>(minimum, x_block, span[m]);
        } else {
            if constexpr (minima_per_step(sums) != 0) y[m] = add_minimum<sums>(minimum, x_block, y[m]);
            if constexpr (num_dots == 2) y[m] = add_halves(sum, scale, x_block, y[m]);
            else y[m] = add_step(sum[0], *scale, x_block, y[m]);
        }
    }
}

// With two tokens and more a step takes longer than its bytes, and the processor's own prefetching lets the stream run
// dry between loads; one token reads as fast as memory gives, and would be held up by the instructions. 4 KiB are 14
// steps of 4 bits, 0.3 us of them at 4 tokens: three times memory's latency.
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
        const int steps = std::min(shape.steps, num_steps - first);
        for (int v = 0; v < vectors; v++) {
            const int row = v * width;
            Floats scale[most_steps * scales_per_step(sums)], minimum[most_steps * minima_per_step(sums) + 1];
            Format::scales(block, row, steps, scale, minimum);
            Floats span[tokens];
            for (auto& value : span) value = splat(0.0f);
            const uint8_t* from = block + Format::header_bytes;
            for (int s = 0; s < steps; s++, from += Format::bits * step_bytes_per_bit) {
                if constexpr (tokens > 1) fetch_ahead(from, Format::bits * step_bytes_per_bit);
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
    static constexpr auto directs = directs_of<Format>(std::make_integer_sequence<int, direct_tokens>{});
    directs[num_tokens - 1](stretch, shape, num_steps, x, token_bytes, y);
    return this_isa;
}
