// Turns: signs, then a Hadamard matrix, or the inverse, of runs of 16 to 128 values. quant/turn.py defines them.
//
// A butterfly is one sum and one difference in a fixed order, so every instruction set comes to the same bits.
#pragma once

#include <cstdint>

#include "isa.h"

namespace qk::turn {

inline constexpr int smallest = 16, largest = 128;

// How many of `row_size` values are turned together: the largest power of two that divides them, at most 128.
constexpr int size_of(int64_t row_size) {
    int size = smallest;
    while (size < largest && row_size % (2 * size) == 0) size *= 2;
    return size;
}

// The signs of a turn of `size` values: [size], 1 or -1
const float* signs_of(int size);

// Outputs of a product with turned rows, 16 of a panel side by side.
struct Outputs {
    float* y;  // [num_tokens, y_stride], at the first panel's first row
    int64_t y_stride, num_tokens, num_panels;
    const float* scale;  // [num_panels, 16]
    const float* addend;  // [num_tokens]; null: nothing is added
};

struct Kernels {
    // values [count, size] in place; back: the inverse
    void (*rows)(float* values, int64_t count, int size, bool back);
    // y = ((y + addend) * scale), turned back 16 at a time
    void (*outputs)(const Outputs& out);
};

// Those of this instruction set, or of the best one below it.
const Kernels& kernels_of(Isa isa);

#define QK_DECLARE(isa)                                           \
    namespace isa {                                               \
    void rows(float* values, int64_t count, int size, bool back); \
    void outputs(const Outputs& out);                             \
    }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx512)
#undef QK_DECLARE

}  // namespace qk::turn
