// Contents of a block of each format, in plain C++ and without kernels: struct layout::NAME with
//     block_size, block_bytes   weights and bytes of a block
//     bits                      of a code; linear/block.h says which planes follow from it
//     step_bytes                of 32 weights of 16 rows in a panel, if it keeps no planes of codes
//     sums                      how integer sums become outputs
//     fields                    scales and minima, in the order in which panels keep them
//     stored_codes              the codes of a block, unsigned: q [block_size]
//     pack_steps                in place of stored_codes: a row's part of all steps of a block in a panel
//     most_direct_tokens        crossover of linears: largest number of tokens for which the direct path is faster
//     rerounded                 whether Path::int8x256 takes the format
//     levels                    of a codebook
//     point_size, num_points    of a lattice: see lattice.h
#pragma once

#include <cstdint>

#include "block_formats/lattice.h"
#include "linear/sums.h"

namespace qk::layout {

// ---- codes as blocks store them, to a byte each: for stored_codes

inline void low_high_nibbles(const uint8_t* from, int count, uint8_t* q) {
    for (int j = 0; j < count; j++) {
        q[j] = from[j] & 15;
        q[j + count] = from[j] >> 4;
    }
}

// Bit j of `from` above the code's `at` lower ones.
inline void add_bits(const uint8_t* from, int at, uint8_t* q) {
    for (int j = 0; j < 32; j++) q[j] |= (from[j / 8] >> j % 8 & 1) << at;
}

// Runs of 32 codes that share bytes: byte j has two bits of code j of each of four runs.
inline void two_bits_of_runs(const uint8_t* from, uint8_t* q) {
    for (int run = 0; run < 4; run++)
        for (int j = 0; j < 32; j++) q[32 * run + j] = from[j] >> 2 * run & 3;
}

// Byte j has one bit of code j of each of eight runs of 32.
inline void add_bits_of_runs(const uint8_t* from, int at, uint8_t* q) {
    for (int run = 0; run < 8; run++)
        for (int j = 0; j < 32; j++) q[32 * run + j] |= (from[j] >> run & 1) << at;
}

// ---- the layouts

using linear::Sums;

// A run of a block's bytes that is packed byte by byte, or two by two for float16.
struct Field { int first, size, element; };

struct BlockLayout {
    static constexpr bool rerounded = false;
    static constexpr void (*stored_codes)(const uint8_t* block, uint8_t* q) = nullptr;
    static constexpr void (*pack_steps)(const uint8_t* block, int row, uint8_t* to) = nullptr;
};

// The points of a grid, with signs.
template <class Layout>
struct LatticeLayout : BlockLayout {
    static constexpr int block_size = 256, most_direct_tokens = 8;
    static void pack_steps(const uint8_t* block, int row, uint8_t* to) { pack_lattice<Layout>(block, row, to); }
};

// Super-blocks whose sub-blocks have scales, and perhaps minima, of few bits.
struct KQuantLayout : BlockLayout { static constexpr bool rerounded = true; };

// Levels of a codebook as a vector looks them up.
template <class T>
struct alignas(64) LevelTable {
    T at[16];
};

template <class T>
constexpr LevelTable<T> level_table(const int (&levels)[16], int lift = 0) {
    LevelTable<T> table{};
    for (int i = 0; i < 16; i++) table.at[i] = static_cast<T>(levels[i] + lift);
    return table;
}

// most_direct_tokens was measured on one thread of an AVX-512 VNNI machine, K = 2048, N = 2048, weights from memory,
// both paths at 8, 16, 24 and 32 tokens. The direct path unpacks once every 8 tokens. The tile path unpacks once,
// stores the codes, loads them for 6 tokens x 2 panels and fetches the next ones. So the price of unpacking decides.
// Codes of one plane need a shift and a mask, and it pays to unpack them again for a few times 8 tokens; codes of 8
// bits fill all that is loaded.
#define QK_LAYOUT
#include "block_formats/all.inl"
#undef QK_LAYOUT

// Bits of the codes that are multiplied. A codebook's are its signed levels. Codes with minima for halves first take
// their sub-scale of 4 bits.
template <class Layout>
constexpr int code_bits() {
    if constexpr (requires { Layout::levels; }) {
        int bits = 1;
        for (const int level : Layout::levels)
            while (level < -(1 << (bits - 1)) || level >= 1 << (bits - 1)) bits++;
        return bits;
    } else {
        return Layout::bits + (Layout::sums == Sums::step_half_minima ? 4 : 0);
    }
}

// Bytes of a step of 32 weights in a panel of 16 rows.
template <class Layout>
constexpr int step_bytes() {
    if constexpr (requires { Layout::step_bytes; })
        return Layout::step_bytes;
    else
        return Layout::bits * (16 * 32 / 8);
}

// Fields and steps are all that a block has.
template <class Layout>
constexpr int stored_bytes() {
    int bytes = Layout::block_size / 32 * step_bytes<Layout>() / 16;
    for (const Field& field : Layout::fields) bytes += field.size;
    return bytes;
}
#define QK_CHECK_LAYOUT(name) static_assert(stored_bytes<name>() == name::block_bytes);
QK_BLOCK_FORMATS(QK_CHECK_LAYOUT)
#undef QK_CHECK_LAYOUT

}  // namespace qk::layout
