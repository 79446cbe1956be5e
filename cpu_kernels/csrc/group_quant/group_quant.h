// Rows of weights to whole numbers under float scales, and back, bit for bit as the NumPy codecs do it: integer groups
// (quant/formats/int_group.py), int8 per channel (quant/formats/int8.py) and LLM.int8() (quant/formats/llm_int8.py).
#pragma once

#include <cstdint>
#include <span>

#include "dispatch.h"

namespace qk::group_quant {

// The grid of a group's codes.
struct Grid {
    float scale;   // above 0
    int zero_point;
};

// Those that return an Isa return their own: the proof that they ran.
struct Kernels {
    // The grid that spans these weights, finite, with scale exact in float16; zero_point 0 if symmetric.
    Grid (*fit)(const float* x, int64_t count, int qmin, int qmax, bool symmetric);
    // round(x / scale) + zero_point to even, clamped to [qmin, qmax]
    Isa (*round)(const float* x, int64_t count, const Grid& grid, int qmin, int qmax, int8_t* out);
    // scale * (q - zero_point)
    Isa (*restore)(const int8_t* q, int64_t count, const Grid& grid, float* out);
    // The same of a grid each; zero_point of whole numbers
    Isa (*restore_each)(const int8_t* q, int64_t count, const float* scale, const float* zero_point, float* out);
    // The largest magnitude; NaN where something is not finite.
    float (*absmax)(const float* x, int64_t count);
    // The nearest float16 of each, magnitudes at most 65504.
    void (*to_halves)(const float* x, int64_t count, float* out);
    // round(x * factor) to even, which an int8 holds
    Isa (*round_product)(const float* x, int64_t count, float factor, int8_t* out);
};

std::span<const Impl<Kernels>> table();

// Weights in groups. group_size divides row_size.
struct Groups {
    int64_t num_rows, row_size, group_size;
    int bits;
    bool symmetric;

    int64_t num_groups() const { return row_size / group_size; }  // of a row
    int64_t packed_bytes() const { return (row_size * bits + 31) / 32 * 4; }  // of a row
};

// These return the kernels' own names, or impl's name if there was nothing to do.

// weight [N, K] -> packed [N, packed_bytes], scale [N, G] float16 bits, zero_point [N, G] or null where symmetric.
// Throws std::invalid_argument for NaN or infinity.
Isa quantize_groups(const Groups& groups, const float* weight, uint8_t* packed, uint16_t* scale, int8_t* zero_point,
                    const Impl<Kernels>& impl);

// group_of [K]: the group of each input feature, null if groups follow one another.
Isa dequantize_groups(const Groups& groups, const uint8_t* packed, const uint16_t* scale, const int8_t* zero_point,
                      const int32_t* group_of, float* weight, const Impl<Kernels>& impl);

// weight [N, K] -> q [N, K], scale [N]: absmax / 127 of each row, of all where per_tensor.
// Throws std::invalid_argument for NaN or infinity.
Isa quantize_rows(const float* weight, int64_t num_rows, int64_t row_size, bool per_tensor, int8_t* q, float* scale,
                  const Impl<Kernels>& impl);

// The same by bitsandbytes' roundings: of the weights to float16 first, and of 127 / absmax, which codes are multiplied
// with. absmax [N]: of the rounded weights. Throws std::invalid_argument for magnitudes above 65504, NaN and infinity.
Isa quantize_llm_int8(const float* weight, int64_t num_rows, int64_t row_size, int8_t* q, float* absmax,
                      const Impl<Kernels>& impl);

Isa dequantize_rows(const int8_t* q, const float* scale, int64_t num_rows, int64_t row_size, float* weight,
                    const Impl<Kernels>& impl);

#define QK_DECLARE(isa)                                                                                        \
    namespace isa {                                                                                            \
    Grid fit(const float* x, int64_t count, int qmin, int qmax, bool symmetric);                               \
    Isa round(const float* x, int64_t count, const Grid& grid, int qmin, int qmax, int8_t* out);               \
    Isa restore(const int8_t* q, int64_t count, const Grid& grid, float* out);                                 \
    Isa restore_each(const int8_t* q, int64_t count, const float* scale, const float* zero_point, float* out); \
    float absmax(const float* x, int64_t count);                                                               \
    void to_halves(const float* x, int64_t count, float* out);                                                 \
    Isa round_product(const float* x, int64_t count, float factor, int8_t* out);                               \
    }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx512)
#undef QK_DECLARE

}  // namespace qk::group_quant
