// Which blocks of a text a query reads: products of a vector with a float16 row per block, and the largest of these.
//
// One thread scores a run of rows of one kv head. A row is read once, so that the scan runs at memory bandwidth:
//
//     score[n] = sum over c of row[n][c] * vector[c]        float32, fused; 16 sums, of c mod 16, then their tree
//
// Every row has the same chain of operations, in every instruction set: equal rows get equal scores.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "dispatch.h"

namespace qk::blocks {

inline constexpr int lanes = 16;  // columns are a multiple

struct Kernels {
    // scores [num_rows] of rows [num_rows, size] float16. Returns its instruction set as a proof.
    Isa (*score)(const uint16_t* rows, int64_t num_rows, int64_t size, const float* vector, float* scores);
};

std::span<const Impl<Kernels>> table();

// Rows of `heads` kv heads, [heads, room, size] float16, of which the first num_rows of each head count.
struct Rows {
    const uint16_t* data;
    int64_t heads, room, num_rows, size;
};

// scores [queries, heads, num_rows] of vectors [queries, heads, size]. Returns the instruction set that ran.
Isa score(const Rows& rows, const float* vectors, int64_t queries, float* scores, const Impl<Kernels>& impl);

// best [queries, heads, most]: of the first limits[q] scores of a query the counts[q] largest, their places rising, then
// -1. The first of equal scores are taken; NaN counts as infinity. counts[q] is at most `most` and limits[q].
void best(const float* scores, int64_t queries, int64_t heads, int64_t num_rows, const int64_t* limits,
          const int64_t* counts, int64_t most, int64_t* best);

#define QK_DECLARE(isa)                                                                                  \
    namespace isa {                                                                                      \
    Isa score(const uint16_t* rows, int64_t num_rows, int64_t size, const float* vector, float* scores); \
    }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx512)
#undef QK_DECLARE

}  // namespace qk::blocks
