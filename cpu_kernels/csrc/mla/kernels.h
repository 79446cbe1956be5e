// The up-projections of multi-head latent attention: every head's own small matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dispatch.h"

namespace qk::mla {

enum class Format : uint8_t { f32, f16, bf16, int8 };

inline constexpr int num_formats = 4;
inline constexpr const char* format_names[num_formats] = {"f32", "f16", "bf16", "int8"};

// Throws std::invalid_argument that lists the formats.
Format parse_format(std::string_view name);

constexpr int64_t item_bytes(Format format) { return format == Format::f32 ? 4 : format == Format::int8 ? 1 : 2; }

// Inputs of int8 codes that share a scale for each output channel: as many as a head's key has as a rule. The codes of
// normal weights, 2.7 deviations of which are the absmax of 128, are off by 0.6 % of a deviation.
inline constexpr int64_t group_inputs = 128;

constexpr int64_t groups_of(Format format, int64_t inputs) {
    return format == Format::int8 ? (inputs + group_inputs - 1) / group_inputs : 0;
}

// Output channels side by side: four registers of 512 bits, so that as many sums hide a multiply-add's latency of four
// cycles when one register of weights is widened per cycle.
inline constexpr int64_t panel_columns = 64;

// Weights of 64 output channels of a head: [inputs][64] in memory, of int8 behind scales [groups][64] float32. Sums run
// over the inputs in order, fused, of int8 those of a group and then the groups', so that neither the instruction set
// nor how many tokens come together changes a bit.
struct Panel {
    Format format;
    const std::byte* data;
    int64_t inputs;

    const float* scales() const { return reinterpret_cast<const float*>(data); }
    const std::byte* weights() const { return data + groups_of(format, inputs) * panel_columns * 4; }
    int64_t nbytes() const { return panel_columns * (groups_of(format, inputs) * 4 + inputs * item_bytes(format)); }
};

// x [tokens, inputs] and y [tokens, 64], strides in floats.
struct Product {
    const float* x;
    int64_t x_stride;
    int64_t tokens;
    float* y;
    int64_t y_stride;
};

struct Kernels {
    // y = x times the panel. Returns its own name: the proof that it ran.
    Isa (*multiply)(const Panel& panel, const Product& product);
};

std::span<const Impl<Kernels>> table();

#define QK_DECLARE(isa) \
    namespace isa { Isa multiply(const Panel& panel, const Product& product); }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx512)
#undef QK_DECLARE

}  // namespace qk::mla
