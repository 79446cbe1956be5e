// A step of one to eight tokens by `dot`, which adds the products of a group to 32-bit sums. Included after lanes and
// accumulate.
//
// For T tokens a step takes 8 T vpdpbusd and 2 T (with minima 3 T or 4 T) multiplies and FMAs, and some 15 operations
// that unpack; one token needs 20 (Q4_0: 26 operations, two a cycle, and loads) of the 38 cycles in which its 288 bytes
// arrive at 27 GB/s per core and 3.6 GHz. Its 8 vpdpbusd in one chain would be 32 cycles from start to end, and too few
// steps in flight hide them behind loads: two chains. Eight outputs, eight spans, eight vectors of codes and a sum take
// 25 of 32 registers, and 64 vpdpbusd, with a load of 4 activations each, hide the unpacking.

template <class Format, int tokens>
inline void multiply_step(const uint8_t* block, const uint8_t* from, int row, int step, const Floats* scale,
                          const Floats* minimum, const std::byte* x, size_t token_bytes, Floats* y, Floats* span) {
    constexpr Sums sums = Format::sums;
    constexpr int num_dots = scales_per_step(sums), groups = step_groups / num_dots;
    constexpr int chains = tokens * num_dots == 1 ? 2 : 1;
    Bytes codes[step_groups];
    Format::codes(block, from, row, step, codes);
    for (int m = 0; m < tokens; m++) {
        const auto& x_block = *reinterpret_cast<const ActivationBlock*>(x + m * token_bytes);
        Ints sum[num_dots];
        for (int h = 0; h < num_dots; h++) {
            Ints chain[chains] = {bias<Format::lift>(num_dots == 2 ? x_block.offset_half[h] : x_block.offset)};
            for (int c = 1; c < chains; c++) chain[c] = zero_ints();
            for (int g = h * groups; g < (h + 1) * groups; g++)
                chain[g % chains] = dot<Format::lift>(chain[g % chains], codes[g], four_codes(x_block, g));
            sum[h] = chains == 1 ? chain[0] : chain[0] + chain[chains - 1];
        }
        add_sums<sums>(sum, scale, minimum, x_block, y[m], span[m]);
    }
}
