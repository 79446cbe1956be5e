// An unpacked stretch of 256-blocks to int8 codes with one scale per row and block, in place. Included after lanes.
// cpu_kernels/linear.py defines the arithmetic, bit for bit.
//
// A weight is scale * q + minimum, with the scale and minimum of its 16 or 32. Its new code is
//
//     128 + (weight * 127 / absmax, to the nearest)  =  bits 8..15 of  factor * q + addend
//     factor  =  scale * 127 * 256 / absmax, to the nearest           addend  =  the same of minimum, + 128.5 * 256
//
// so one multiply and one add of 16 bits round a code, and nothing is narrowed. The true sum is in 368 .. 65423: 127 *
// 256 of either sign around 128.5 * 256, and an error of 1/2 for the addend and 1/2 for each of at most 45 (q2_k) or,
// of either sign, 32 (q6_k) of the factor. Carries out of 16 bits on the way cancel. If the tile takes signed
// codes, neither 128 is added.

namespace {

constexpr int reround_steps = 8;  // of 32 inputs: a block of 256

// The largest magnitude of codes of `bits` bits. With minima for halves, as of q2_k, unpacking has multiplied them by
// their sub-scale of 4 bits; those without a minimum are stored with a lift, and begin at -2^(bits - 1).
template <Sums sums>
constexpr int largest_code(int bits) {
    if (!minima_per_step(sums)) return 1 << (bits - 1);
    return ((1 << bits) - 1) * (sums == Sums::step_half_minima ? 15 : 1);
}

// absmax: the largest value that a code can have, whether or not one has it; so it follows from the scales alone.
template <Sums sums>
void reround_block(uint8_t* codes, const float* scale, const float* minimum, int bits, int row, float* out_scale) {
    constexpr int parts = sums == Sums::step_minimum ? 1 : 2;  // of a step, that have scales or minima of their own
    constexpr bool has_minima = minima_per_step(sums) != 0;
    constexpr int part_groups = step_groups / parts, num_parts = reround_steps * parts;
    const int lift = stretch_lift(sums, bits);
    constexpr int new_lift = stretch_lift(Sums::span, 8);
    const Floats largest = splat(static_cast<float>(largest_code<sums>(bits)));
    const auto scale_of = [&](int i) {
        return load(scale + (scales_per_step(sums) == parts ? i : i / parts) * panel_rows + row);
    };
    Floats absmax = splat(0.0f);
    for (int i = 0; i < num_parts; i++) {
        const Floats first = has_minima ? load(minimum + i * panel_rows + row) : splat(0.0f);
        // In this order NaN wins: a block has its float16 factors in all its scales, or all its minima.
        absmax = larger(absmax, larger(absolute(first), absolute(first + scale_of(i) * largest)));
    }
    // No scale is below 2^-24, float16's least, unless all of them are 0: then factors are 0, not NaN.
    const Floats inverse = splat(127.0f * 256.0f) / larger(splat(0x1p-24f), absmax);
    Halves factor[num_parts], addend[num_parts];
    for (int i = 0; i < num_parts; i++) {
        const Ints whole = round(scale_of(i) * inverse);
        const Ints first = has_minima ? round(load(minimum + i * panel_rows + row) * inverse) : whole * -lift;
        factor[i] = twice(whole);
        addend[i] = twice(first + (new_lift * 256 + 128));
    }
    for (int g = 0; g < reround_steps * step_groups; g++) {
        uint8_t* group = codes + g * group_bytes + row * 4;
        store_codes(group, high_bytes(load_codes(group), factor[g / part_groups], addend[g / part_groups]));
    }
    store(out_scale + row, absmax * splat(1.0f / 127.0f));
}

template <Sums sums>
void reround(const Stretch& stretch, int bits) {
    constexpr int num_scales = scales_per_step(sums), num_minima = minima_per_step(sums);
    for (int step = 0, i = 0; step < stretch.num_steps; step += reround_steps, i++)
        for (int row = 0; row < panel_rows; row += width)
            reround_block<sums>(
                stretch.codes + step * step_groups * group_bytes, stretch.scale + step * num_scales * panel_rows,
                stretch.minimum + step * num_minima * panel_rows, bits, row, stretch.scale + i * panel_rows);
}

}  // namespace

#define QK_DEFINE(sums) \
    void reround_##sums(const Stretch& stretch, int bits) { reround<Sums::sums>(stretch, bits); }
QK_REROUNDED_SUMS(QK_DEFINE)
#undef QK_DEFINE
