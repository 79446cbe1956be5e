// softmax(q k^T) v over a stretch of one sequence's tokens, for rows that share a kv head: one table of kernels.
//
// A row is one query of one head. Rows of a tile read each key and value once, from registers. Tokens are taken a chunk
// at a time (arXiv 2205.14135, algorithm 1, for a chunk of keys): scores, then weights 2^(score - max of all so far),
// then the weighted sum of values, what was summed before being scaled down as the maximum rises. A row's arithmetic
// is the same chain of operations whatever the tile it is in, so no result depends on the batch.
#pragma once

#include <cstdint>
#include <span>

#include "attention/layout.h"
#include "dispatch.h"

namespace qk::attention {

// Keys and values of a chunk in float16, D = 64, are 2 x 16 KiB: they come from the L2, where they are prefetched. Half
// as many would fit the L1, and cost the chunk's fixed part (two sums across lanes a row) twice as often.
inline constexpr int chunk_tokens = 128;
inline constexpr int chunk_blocks = chunk_tokens / block_tokens;
inline constexpr int max_tile = 8;  // rows of a tile; what is per row has room for a whole number of tiles

// Consecutive tokens of one sequence and kv head: token first + 16 i + j is token j of block i.
struct Stretch {
    const Block* keys;
    const Block* values;
    int64_t first;       // a multiple of chunk_tokens
    int64_t num_tokens;
};

// What `prepare` makes of queries. Floats are times softmax_scale / ln 2, as weights are powers of 2. Integer keys are
// multiplied with integers: q ~= scale * codes, codes in -32767 .. 32767, scale NaN where q has NaN or infinity.
struct Queries {
    float* values;   // [rows, D]
    int16_t* codes;  // [rows, D]
    float* scale;    // [rows]
    float* sums;     // [rows, groups]: scale * sum of codes, what a key's minimum is multiplied with
};

struct Rows {
    int count;
    Queries queries;
    const int64_t* begin;  // [rows]: the row sees tokens begin <= t < end
    const int64_t* end;
    float* max;  // [rows] of all scores so far; -infinity before the first
    float* sum;  // [rows] of weights
    float* out;  // [rows, D] of weights times values
};

struct Kernels {
    // q [D] times `factor` becomes row `row` of `queries`.
    void (*prepare)(const Layout& layout, const float* q, float factor, const Queries& queries, int row);
    // Takes the stretch's tokens into max, sum and out. Returns who it is: the proof of what ran.
    Isa (*attend)(const Layout& layout, const Stretch& stretch, const Rows& rows);
    // out [D] = factor * sum over parts of partial[i] * 2^(max[i] - m) / sum over parts of sum[i] * 2^(max[i] - m), m
    // the largest max; zeros where no part saw a token. max, sum [parts], partial [parts, D], strides in floats
    void (*combine)(const float* max, const float* sum, int64_t stride, const float* partial, int64_t partial_stride,
                    int64_t parts, float factor, int64_t head_dim, float* out);
    // Largest magnitude of x [size], NaN above all.
    float (*absmax)(const float* x, int64_t size);
    // Keys or values of one token and head as codes [D], one a byte for integers, and their scales: float32, or float16
    // [groups][2]. `scale` is what float8 is divided by. Bit for bit as quant's codecs do it.
    void (*encode)(const Layout& layout, const float* x, float scale, std::byte* codes, std::byte* scales);
    // out [D]: pair (i, i + D / 2) of x turned by its angle; cos, sin [D], sin with the sign of the swap
    void (*rotate)(const float* x, const float* cos, const float* sin, int64_t head_dim, float* out);
};

std::span<const Impl<Kernels>> table();

#define QK_DECLARE(isa)                                                                                               \
    namespace isa {                                                                                                   \
    void prepare(const Layout& layout, const float* q, float factor, const Queries& queries, int row);                \
    Isa attend(const Layout& layout, const Stretch& stretch, const Rows& rows);                                       \
    void combine(const float* max, const float* sum, int64_t stride, const float* partial, int64_t partial_stride,    \
                 int64_t parts, float factor, int64_t head_dim, float* out);                                          \
    float absmax(const float* x, int64_t size);                                                                       \
    void encode(const Layout& layout, const float* x, float scale, std::byte* codes, std::byte* scales);              \
    void rotate(const float* x, const float* cos, const float* sin, int64_t head_dim, float* out);                    \
    }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx512)
QK_DECLARE(avx512_vnni)
#undef QK_DECLARE

}  // namespace qk::attention
