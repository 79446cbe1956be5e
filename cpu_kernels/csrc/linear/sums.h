// How the integer sums of a step of 32 weights become outputs.
#pragma once

#include <cstdint>

namespace qk::linear {

// How a step's integer sums, dot = sum of code * x, become outputs. `f` is the dot as float.
//     step              y += (scale * x.scale) * f
//     step_minimum      y += minimum * x.scaled_sum, then the same
//     step_half_minima  y += minimum[h] * x.scaled_sum_half[h] for both halves of the step, then the same
//     half              y += x.scale * (scale[0] * f[0] + scale[1] * f[1]), a dot for each half
//     span              a += x.scale * f over the steps that share a scale, then y += scale * a
//     span_zero         the same, with a += zero * x.scaled_sum as well
// With minima codes are unsigned as they are; otherwise they are signed, as in span_zero. Once they are unpacked,
// an instruction set has its own lift added to those, stretch_lift in lanes: 128 as a rule.
enum class Sums : uint8_t { step, step_minimum, step_half_minima, half, span, span_zero };

constexpr bool is_span(Sums sums) { return sums == Sums::span || sums == Sums::span_zero; }
constexpr bool is_biased(Sums sums) { return sums != Sums::step_minimum && sums != Sums::step_half_minima; }
constexpr int unpacked_lift(Sums sums) { return is_biased(sums) ? 128 : 0; }

// The width of codes, of those for which a tile is compiled where its width matters: see tile/pairs.inl.
constexpr int tile_bits(int code_bits) { return code_bits <= 4 ? 4 : code_bits <= 7 ? code_bits : 8; }

constexpr int scales_per_step(Sums sums) { return sums == Sums::half ? 2 : 1; }
constexpr int minima_per_step(Sums sums) {
    return sums == Sums::step_half_minima ? 2 : sums == Sums::step_minimum ? 1 : 0;
}

}  // namespace qk::linear
