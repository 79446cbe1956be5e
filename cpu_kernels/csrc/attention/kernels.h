// softmax(q k^T) v over a stretch of one sequence's tokens, for rows that share a kv head: one table of kernels.
//
// A row is one query of one head. Rows of a tile read each key and value once, from registers. Tokens are taken a chunk
// at a time (arXiv 2205.14135, algorithm 1, for a chunk of keys): scores, then weights 2^(score - max of all so far),
// then the weighted sum of values; earlier sums are scaled down as the maximum rises. A row's arithmetic
// is the same chain of operations whatever the tile it is in, so no result depends on the batch.
#pragma once

#include <cstdint>
#include <span>

#include "attention/store/layout.h"
#include "dispatch.h"

namespace qk::attention {

// Keys and values of a chunk in float16, D = 64, are 2 x 16 KiB: they come from the L2, where they are prefetched. Half
// as many would fit the L1, and cost the chunk's fixed part (two sums across lanes per row) twice as often.
inline constexpr int chunk_tokens = 128;
inline constexpr int chunk_blocks = chunk_tokens / block_tokens;
inline constexpr int max_tile = 8;  // rows of a tile; arrays over rows have room for whole tiles
inline constexpr int tile_rows = 16;  // of a tile of AMX

// Rows of a sequence and kv head from which on tiles multiply them. At 16 rows, the fewest measured, tiles are 1.9 to
// 3.7 times as fast as AVX-512 (Granite Rapids, D = 64 and 128). But few rows, of drafted tokens for example, keep the
// bits that each query has alone.
inline constexpr int64_t least_tiled_rows = 32;

// Consecutive tokens of one sequence and kv head: token first + 16 i + j is token j of block i.
struct Stretch {
    const Block* keys;
    const Block* values;
    int64_t first;  // a multiple of chunk_tokens
    int64_t num_tokens;
};

// The queries that `prepare` makes. Floats are times softmax_scale / ln 2, as weights are powers of 2. Integer keys are
// multiplied with integers: q ~= scale * codes, codes in -32767 .. 32767, scale NaN where q has NaN or infinity. Where
// other keys are multiplied as bfloat16, codes are bfloat16 too.
struct Queries {
    float* values;  // [rows, D]; null: rows in tiles are multiplied by their codes
    int16_t* codes;  // [rows, D]
    float* scale;  // [rows]
    float* sums;  // [rows, groups]: scale * sum of codes, the factor of a key's minimum
};

struct Rows {
    int count;
    Queries queries;
    const int64_t* begin;  // [rows]: the row sees tokens begin <= t < end
    const int64_t* end;
    float* max;  // [rows] of all scores so far; -infinity before the first
    float* sum;  // [rows] of weights
    float* out;  // [rows, D] of weights times values

    // Whether tiles multiply them (`has_tiles`); then there is memory for rows up to a multiple of tile_rows.
    bool in_tiles;
    // Null, or for each chunk of the stretch [rows, chunk_tokens]: weights, each relative to the row's maximum after
    // the chunk, which chunk_max keeps, [rows] for each chunk. Tokens that a row does not see are not written, or 0.
    float* weights;
    float* chunk_max;
    // Null, or [tokens of the stretch]: nothing is attended to, and the weights 2^(score - max) of all rows are added
    // to those here, with max a given one: log2 of the sum of 2^score.
    float* mass;
};

// The largest of all scores of a row, and the sum of 2^(score - max).
struct Softmax { float max, sum; };

// ---- latents: one row per token that all heads share (DeepSeek-V2, arXiv:2405.04434, section 2.1, absorbed)

enum class LatentFormat : uint8_t { f32, f16, bf16, fp8, int8, int4 };

inline constexpr int num_latent_formats = 6;
inline constexpr const char* latent_format_names[num_latent_formats] = {"f32", "f16", "bf16", "fp8", "int8", "int4"};

constexpr bool is_coded(LatentFormat format) { return format >= LatentFormat::fp8; }

// Value channels that share a scale; other formats have no scales.
constexpr int64_t latent_group(LatentFormat format) {
    return format == LatentFormat::fp8 ? 128 : format == LatentFormat::int8 ? 64 : 32;
}

inline constexpr int64_t latent_step = 64;  // value channels are a multiple: four registers of 512 bits
inline constexpr int64_t latent_heads = 16;  // heads are padded to a multiple: one such register
// Rows unpacked at a time: 64 x 576 floats are 144 KiB, which with 16 heads' queries and sums (68 KiB) stay in an L2.
inline constexpr int64_t latent_chunk = 64;
// Rows of a call: at 16 heads 256 x 1088 multiply-adds of a register, 80 us.
inline constexpr int64_t latent_split = 256;
static_assert(latent_split % latent_chunk == 0);

// A row of codes, R value channels and D rotated ones:
//
//     fp8     R x e4m3       | R / 128 x float32 scale                    | D x bfloat16     R = 512, D = 64: 656 bytes
//     int8    R x uint8      | R / 64 x float16 scale, float16 minimum    | D x bfloat16
//     int4    R / 2 bytes    | R / 32 x float16 scale, float16 minimum    | D x bfloat16
//
// 16 bytes of int4 are 32 channels that share a scale, the first 16 in low nibbles, the others in high ones.
struct LatentShape {
    LatentFormat format;
    int64_t head_dim;  // channels of a row, all of which a score takes
    int64_t value_dim;  // the first of them, which are summed

    constexpr int64_t scales_offset() const { return format == LatentFormat::int4 ? value_dim / 2 : value_dim; }
    constexpr int64_t rope_offset() const { return scales_offset() + value_dim / latent_group(format) * 4; }
    constexpr int64_t row_bytes() const {
        if (is_coded(format)) return rope_offset() + (head_dim - value_dim) * 2;
        return head_dim * (format == LatentFormat::f32 ? 4 : 2);
    }
};
static_assert(LatentShape{LatentFormat::fp8, 576, 512}.row_bytes() == 656);

struct LatentRows {
    LatentShape shape;
    const std::byte* const* rows;  // [count] codes of a token
    int64_t count;  // up to latent_split
    int64_t heads;  // those there are, and more up to a multiple of latent_heads
    int64_t num_heads;  // those there are: of one query, or of several that follow each other
    const int64_t* seen;  // [num_heads], never falling: number of first rows that each sees, 1 or more
    const float* q;  // [num_heads, head_dim]
    float factor;  // softmax_scale / ln 2
    // [heads / latent_heads, head_dim, latent_heads]: q times the factor; null if in tiles
    const float* queries;
    float* max;  // [heads], as in Rows; -infinity before the call
    float* sum;  // [heads]; 0 before the call
    float* out;  // [heads, value_dim]; 0 before the call, or anything if in tiles
    float* scratch;  // [latent_chunk, head_dim + heads]; null if in tiles
    bool in_tiles;  // Whether tiles multiply them, as in Rows

    // Null, or [count, heads]: weights, each relative to the maximum of its head that chunk_max keeps for each chunk of
    // latent_chunk rows: [chunks, heads]. 0 if a head does not see the row.
    float* weights;
    float* chunk_max;
};

// Weights of a chunk of rows, of the heads [first, last) of one query. Whole registers are read from head
// `first` on, of weights and of max.
struct LatentWeights {
    const float* weights;  // [count, heads]
    const float* max;  // [heads]: each head's maximum that its weights are relative to
    int64_t count, heads;
    int64_t first, last;
    const Softmax* totals;  // [heads]; of heads that are not there anything
};

struct Kernels {
    // Codes of float8 are read 1 / code_unit^2 times their values. Half of that is made up for in the factors of
    // queries and sums, so that neither leaves the range of float32.
    float (*code_unit)(Format format);
    // q [D] times `factor` becomes row `row` of `queries`.
    void (*prepare)(const Layout& layout, const float* q, float factor, const Queries& queries, int row);
    // Takes the stretch's tokens into max, sum and out, or into mass. Returns its instruction set as a proof.
    Isa (*attend)(const Layout& layout, const Stretch& stretch, const Rows& rows);
    Isa (*attend_latents)(const LatentRows& work);
    // out [D] = factor * sum over parts of partial[i] * 2^(max[i] - m) / sum over parts of sum[i] * 2^(max[i] - m), m
    // the largest max; zeros if no part saw a token. max, sum [parts], partial [parts, D], strides in floats
    Softmax (*combine)(const float* max, const float* sum, int64_t stride, const float* partial, int64_t partial_stride,
                       int64_t parts, float factor, int64_t head_dim, float* out);
    // sums [begin .. end), in whole registers = sum over heads of weights [heads, chunk_tokens] * 2^(chunk_max - max) /
    // sum, with max and sum the heads' totals
    void (*sum_heads)(const float* weights, const float* chunk_max, const Softmax* totals, int64_t heads, int64_t begin,
                      int64_t end, float* sums);
    // mass [count] = sum over the heads of weights * 2^(max - totals.max) / totals.sum
    void (*sum_latent_heads)(const LatentWeights& chunk, float* mass);
    // Largest magnitude of x [size], NaN above all.
    float (*absmax)(const float* x, int64_t size);
    // Keys or values of one token and head as codes [D], one per byte for integers, and their scales: float32, or
    // float16 [groups][2]. `scale` divides float8. Bit for bit as quant's codecs do it.
    void (*encode)(const Layout& layout, const float* x, float scale, std::byte* codes, std::byte* scales);
    // out [D]: pair (i, i + D / 2) of x turned by its angle; cos, sin [D], sin with the sign of the swap
    void (*rotate)(const float* x, const float* cos, const float* sin, int64_t head_dim, float* out);
    // Null, or whether `attend` multiplies this format by tiles, if there are least_tiled_rows.
    bool (*has_tiles)(Format format);
};

std::span<const Impl<Kernels>> table();

// The same instruction set, which multiplies f16 as stored for any number of rows.
const Impl<Kernels>& without_rounded_f16(const Impl<Kernels>& impl);

#define QK_DECLARE(isa)                                                                                               \
    namespace isa {                                                                                                   \
    float code_unit(Format format);                                                                                   \
    void prepare(const Layout& layout, const float* q, float factor, const Queries& queries, int row);                \
    Isa attend(const Layout& layout, const Stretch& stretch, const Rows& rows);                                       \
    void attend_floats(const Layout& layout, const Stretch& stretch, const Rows& rows);                               \
    void attend_float8(const Layout& layout, const Stretch& stretch, const Rows& rows);                               \
    void attend_integers(const Layout& layout, const Stretch& stretch, const Rows& rows);                             \
    Isa attend_latents(const LatentRows& work);                                                                       \
    Softmax combine(const float* max_scores, const float* sums, int64_t stride, const float* partial,                 \
                    int64_t partial_stride, int64_t parts, float factor, int64_t head_dim, float* out);               \
    void sum_heads(const float* weights, const float* chunk_max, const Softmax* totals, int64_t heads, int64_t begin, \
                   int64_t end, float* sums);                                                                         \
    void sum_latent_heads(const LatentWeights& chunk, float* mass);                                                   \
    float absmax(const float* x, int64_t size);                                                                       \
    void encode(const Layout& layout, const float* x, float scale, std::byte* codes, std::byte* scales);              \
    void rotate(const float* x, const float* cos, const float* sin, int64_t head_dim, float* out);                    \
    }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx512)
#undef QK_DECLARE

// VNNI multiplies integers, and BF16 float8, as pairs. They run all other code of AVX-512 as it is.
namespace avx512_vnni {
using avx512::absmax, avx512::attend_float8, avx512::attend_floats, avx512::code_unit, avx512::combine, avx512::encode,
    avx512::prepare, avx512::rotate, avx512::sum_heads, avx512::sum_latent_heads;
Isa attend(const Layout& layout, const Stretch& stretch, const Rows& rows);
void attend_integers(const Layout& layout, const Stretch& stretch, const Rows& rows);
Isa attend_latents(const LatentRows& work);
}  // namespace avx512_vnni

namespace avx512_bf16 {
using avx512::absmax, avx512::attend_floats, avx512::combine, avx512::encode, avx512::rotate, avx512::sum_heads,
    avx512::sum_latent_heads;
using avx512_vnni::attend_integers;
float code_unit(Format format);
void prepare(const Layout& layout, const float* q, float factor, const Queries& queries, int row);
Isa attend(const Layout& layout, const Stretch& stretch, const Rows& rows);
void attend_float8(const Layout& layout, const Stretch& stretch, const Rows& rows);
Isa attend_latents(const LatentRows& work);
}  // namespace avx512_bf16

// Tiles multiply many rows. Everything else runs as under AVX-512 BF16.
namespace amx {
using avx512_bf16::absmax, avx512_bf16::combine, avx512_bf16::encode, avx512_bf16::rotate, avx512_bf16::sum_heads,
    avx512_bf16::sum_latent_heads;
float code_unit(Format format);
void prepare(const Layout& layout, const float* q, float factor, const Queries& queries, int row);
Isa attend(const Layout& layout, const Stretch& stretch, const Rows& rows);
Isa attend_latents(const LatentRows& work);
bool has_tiles(Format format);
bool has_exact_tiles(Format format);  // without f16, which they round
}  // namespace amx

}  // namespace qk::attention
