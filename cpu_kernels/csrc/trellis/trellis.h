// The trellis code of quant/formats/trellis.py: weights of a tile to bits by the Viterbi algorithm, and back.
//
// A tile is 256 values and a circle of 256 * bits bits, most significant bit first. State t is the `state_bits` bits up
// to and including symbol t, and its value is
//
//     h = state * multiplier + addend (mod 2^32)        value = sum of the four bytes of h - 510
//
// Every cost is a sum in a fixed order and nothing is fused, so neither the instruction set nor the number of threads
// changes a bit. Ties go to the lowest symbol.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dispatch.h"

namespace qk::trellis {

inline constexpr int tile = 256;
inline constexpr int most_bits = 4, least_state_bits = 8, most_state_bits = 16;
inline constexpr uint32_t multiplier = 2472362639u, addend = 2959306914u;

// One code. A path has `num_ends` states at a time: those that differ in more than the oldest symbol.
struct Code {
    int bits, state_bits;

    int64_t num_ends() const { return int64_t{1} << (state_bits - bits); }
    int words() const { return tile * bits / 16; }  // of 16 bits
};

inline int value_of(uint32_t state) {
    const uint32_t h = state * multiplier + addend;
    return static_cast<int>((h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24)) - 510;
}

struct Kernels {
    // One step of all paths. cost and next [num_ends + 16]: the least cost of a path that ends in these bits, before the
    // value x and after it; oldest [num_ends]: the symbol that leaves the state on the way; values [2^state_bits].
    // Returns its own name: the proof that it ran.
    Isa (*step)(const Code& code, const float* values, const float* cost, float x, float* next, uint8_t* oldest);
};

std::span<const Impl<Kernels>> table();

// x [num_tiles, 256] -> packed [num_tiles, words], with a squared error near the least of all circles: a first path
// over the tile turned by half finds the bits where the circle closes, a second one keeps them.
// source  Tseng et al. 2024, arXiv:2406.11235 (QTIP), algorithm 4
Isa encode(const Code& code, const float* x, int64_t num_tiles, uint16_t* packed, const Impl<Kernels>& impl);

// packed [num_tiles, words] -> values [num_tiles, 256]
void decode(const Code& code, const uint16_t* packed, int64_t num_tiles, float* values);

#define QK_DECLARE(isa)                                                                                        \
    namespace isa {                                                                                            \
    Isa step(const Code& code, const float* values, const float* cost, float x, float* next, uint8_t* oldest); \
    }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx512)
#undef QK_DECLARE

}  // namespace qk::trellis
