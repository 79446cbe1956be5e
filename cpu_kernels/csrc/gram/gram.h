// The Gram matrix of bfloat16-rounded rows: gram[i][j] += sum over tokens of bf16(x[t][i]) * bf16(x[t][j]), in float32.
//
// Only the upper triangle is computed, and on CPUs with bfloat16 products at twice the rate of float32 ones. Two
// roundings of 2^-9 per product average out over the tokens; the sum's own rounding remains.
//
// Columns are in panels of 64 and tokens in pairs, as vdpbf16ps multiplies them:
//
//     panel[pair][column]   one 32-bit word: bf16 of token 2 pair | bf16 of token 2 pair + 1 << 16
//
// Each block of 64 x 64 is computed by one thread, and its sums run in a fixed order, the odd token of a pair before
// the even one: the number of threads changes no bit, nor does the instruction set, but that vdpbf16ps takes numbers
// below 2^-126 for zero.
#pragma once

#include <cstdint>
#include <span>

#include "dispatch.h"

namespace qk::gram {

inline constexpr int panel = 64;
// Pairs that stay in the L1 for all of a block: 2 panels x 64 pairs x 256 bytes = 32 KiB, of which the one that is
// broadcast needs a line in four.
inline constexpr int64_t pairs_at_once = 64;

struct Kernels {
    // sums [panel, panel] += left^T right over `num_pairs`; left, right [num_pairs, panel] words.
    // Returns its own name: the proof that it ran.
    Isa (*add_block)(const uint32_t* left, const uint32_t* right, int64_t num_pairs, float* sums);
};

std::span<const Impl<Kernels>> table();

// gram [K, K] += x^T x, at least where the column is no less than the row; x [M, K]. Returns the kernel that ran.
Isa add(const float* x, int64_t num_tokens, int64_t row_size, float* gram, const Impl<Kernels>& impl);

#define QK_DECLARE(isa) \
    namespace isa { Isa add_block(const uint32_t* left, const uint32_t* right, int64_t num_pairs, float* sums); }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx512)
QK_DECLARE(avx512_bf16)
#undef QK_DECLARE

}  // namespace qk::gram
