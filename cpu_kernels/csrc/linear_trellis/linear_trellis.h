// Weights of a trellis code, 16 rows side by side: the packed layout, and the kernels of each instruction set.
//
// A tile is 16 rows of 16 inputs, and a row of it `bits` words of 16 bits: see quant/formats/trellis.py. The state of a
// weight is the last bits up to its own. It takes bits of two neighbouring words; the first ones of a row begin in the
// last word of the row before. A step of 32 inputs is two tiles, a and b. Their words are the upper and the lower halves
// of 32-bit lanes, one row in each:
//
//     1 bit    a0 b0                          3 bits   a0 a1 | b0 b1 | a2 b2
//     2 bits   a0 a1 | b0 b1                  4 bits   a0 a1 | a2 a3 | b0 b1 | b2 b3
//
// so each vector of 64 bytes is a pair of neighbours as it is, and two vectors are one after a shift and a blend. A
// value is the sum of the four bytes of a hash less 510, and vpdpbusd multiplies all four with the same activation.
#pragma once

#include <cstdint>

#include "linear/block.h"
#include "trellis/trellis.h"

namespace qk::linear_trellis {

inline constexpr int most_bits = trellis::most_bits;
inline constexpr int side = 16;  // rows and inputs of a tile
inline constexpr int vector_bytes = 4 * side;

// Codes for many tokens: a value v is met as 4 * (q + rest), q = (v + 510) / 4 - 128 rounded down. The rest is the
// middle of those that are rounded to one q: the values 4 q + 2 to 4 q + 5.
inline constexpr float rounded_step = 4.0f;
inline constexpr float rounded_rest = 0.875f;

struct Place {
    int vector;
    bool is_upper;
};

// The place of word `word` of a step's tile.
constexpr Place place_of(int bits, int tile, int word) {
    if (bits == 1) return {0, tile == 0};
    if (word == 2 && bits == 3) return {2, tile == 0};
    return {bits == 4 ? 2 * tile + word / 2 : tile, word % 2 == 0};
}

// direct: as BlockKernels says, without scales. decode: a stretch of the rounded codes, whose scale is rounded_step.
#define QK_DECLARE_BITS(isa, name)                                                                                \
    Isa direct_##name(const uint8_t* stretch, const linear::BlockShape& shape, int num_steps, const std::byte* x, \
                      size_t token_bytes, int num_tokens, float* y);                                              \
    void decode_##name(const uint8_t* stretch, const linear::BlockShape& shape, const linear::Stretch& out);
#define QK_DECLARE(isa)      \
    namespace isa {          \
    QK_DECLARE_BITS(isa, w1) \
    QK_DECLARE_BITS(isa, w2) \
    QK_DECLARE_BITS(isa, w3) \
    QK_DECLARE_BITS(isa, w4) \
    }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx_vnni)
QK_DECLARE(avx512)
QK_DECLARE(avx512_vnni)
#undef QK_DECLARE
#undef QK_DECLARE_BITS

}  // namespace qk::linear_trellis
