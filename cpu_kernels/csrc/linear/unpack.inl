// A stretch of a panel to bytes and floats, for the tiles. Included after lanes and formats.

// Scales and minima of `steps` steps of a block, for the rows of a vector.
template <class Format>
inline void unpack_scales(const uint8_t* block, int row, int steps, float* to_scale, float* to_minimum) {
    constexpr Sums sums = Format::sums;
    constexpr int num_scales = scales_per_step(sums), num_minima = minima_per_step(sums);
    constexpr int most_steps = is_span(sums) ? 1 : Format::block_steps;
    const int scaled_steps = is_span(sums) ? 1 : steps;
    Floats scale[most_steps * num_scales], minimum[most_steps * num_minima + 1];
    Format::scales(block, row, steps, scale, minimum);
    for (int i = 0; i < scaled_steps * num_scales; i++) store(to_scale + i * panel_rows + row, scale[i]);
    for (int i = 0; i < scaled_steps * num_minima; i++) store(to_minimum + i * panel_rows + row, minimum[i]);
    if constexpr (sums == Sums::span_zero) store(to_minimum + row, *minimum);
}

// Floats from a block's scales to the next block's, and the same of minima.
constexpr int scales_of_block(Sums sums, int steps) {
    return (is_span(sums) ? 1 : steps * scales_per_step(sums)) * panel_rows;
}
constexpr int minima_of_block(Sums sums, int steps) {
    return (sums == Sums::span_zero ? 1 : is_span(sums) ? 0 : steps * minima_per_step(sums)) * panel_rows;
}

template <class Format>
void unpack(const uint8_t* block, const BlockShape& shape, const Stretch& out) {
    constexpr Sums sums = Format::sums;
    constexpr int lifted = stretch_lift(sums, Format::code_bits);
    uint8_t* to = out.codes;
    float *to_scale = out.scale, *to_minimum = out.minimum;
    for (int begin = 0; begin < out.num_steps; begin += shape.steps, block += shape.bytes(shape.steps)) {
        const int steps = std::min(shape.steps, out.num_steps - begin);
        for (int row = 0; row < panel_rows; row += width) {
            unpack_scales<Format>(block, row, steps, to_scale, to_minimum);
            const uint8_t* from = block + Format::header_bytes;
            uint8_t* step_codes = to + row * 4;
            for (int s = 0; s < steps; s++, from += Format::step_bytes) {
                Bytes codes[step_groups];
                Format::codes(block, from, row, s, codes);
                for (const Bytes group : codes) {
                    store_codes(step_codes, lifted == Format::lift ? group : group + (lifted - Format::lift));
                    step_codes += group_bytes;
                }
            }
        }
        to += steps * step_groups * group_bytes;
        to_scale += scales_of_block(sums, steps);
        to_minimum += minima_of_block(sums, steps);
    }
}
