// Attention of new tokens over a store of keys and values, and their way into it.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>

#include "attention/kernels.h"
#include "attention/store/store.h"

namespace qk::attention {

// [B, heads, T, D] float32 with any strides but the last, which is 1; strides in floats. In a varlen call (see
// Sequences) B is 1 and T all its tokens.
template <class Value>
struct Heads {
    Value* data;
    int64_t batch, heads, tokens, head_dim;
    int64_t batch_stride, head_stride, token_stride;

    Value* at(int64_t b, int64_t h, int64_t t) const {
        return data + b * batch_stride + h * head_stride + t * token_stride;
    }
    // New token t of a sequence.
    Value* at(const Sequences& sequences, int64_t sequence, int64_t h, int64_t t) const {
        const auto [b, token] = sequences.row(sequence, t);
        return at(b, h, token);
    }
};

// The first `count` tokens, that each query sees next to its window, and q [B, heads, T, D] as it meets them: positions
// between the two do not count, so q is rotated by another angle there.
struct Sinks {
    int64_t count = 0;
    Heads<const float> q{};
};

inline Heads<const float> read_only(const Heads<float>& x) {
    return {x.data, x.batch, x.heads, x.tokens, x.head_dim, x.batch_stride, x.head_stride, x.token_stride};
}

// Results besides the output, as cpu_kernels.attention.Attended defines them; null: not asked for.
struct Observed {
    float* lse = nullptr;   // [B, heads, T] as q has them, contiguous
    float* mass = nullptr;  // [sequences, kv heads, slots], contiguous; 0 in slots that hold no token
    int64_t slots = 0;
    int64_t mass_queries = 0;  // number of last new queries of each sequence that count; 0: all
};

// Natural log of the sum of exp(scores), from their maximum and sum to the base 2.
inline float natural_lse(const Softmax& total) {
    return (total.max + std::log2(total.sum)) * std::numbers::ln2_v<float>;
}

// out = softmax(q k^T * softmax_scale) v. Queries are the new tokens of each sequence and see no later token,
// and of those before only window - 1, if window is above 0, and sinks. With a residual all queries of a sequence have
// to see the same tokens encoded, and there are no sinks. Returns the instruction set that ran.
Isa attend(const Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<float>& out,
           float softmax_scale, int64_t window, const Impl<Kernels>& impl, const Sinks& sinks = {},
           const Observed& observed = {});

// Key blocks of every block of queries, in compressed rows. List i of head h is indices[offsets[i] .. offsets[i + 1])
// from the head's first offset on; it rises. All heads share one row of lists if `rows` is 1.
struct BlockLists {
    const int64_t* offsets;  // [rows, query_blocks + 1]
    const int32_t* indices;
    int64_t rows, query_blocks;
    int64_t query_block, key_block;  // tokens; the latter a multiple of block_tokens

    std::span<const int32_t> of(int64_t head, int64_t block) const {
        const int64_t* row = offsets + (rows > 1 ? head : 0) * (query_blocks + 1) + block;
        return {indices + row[0], static_cast<size_t>(row[1] - row[0])};
    }
};

// `attend` of one sequence whose queries see only the key blocks of their lists. A query that sees no token has zeros.
// The store has no residual. If all blocks are listed, the bits are those of `attend`.
Isa attend_blocks(const Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<float>& out,
                  float softmax_scale, const BlockLists& lists, const Impl<Kernels>& impl,
                  const Observed& observed = {});

// Writes observed.mass from the queries and their lse [B, heads, T], for the sequences that `which` lists. Only keys
// are read. Returns the instruction set that ran.
Isa key_mass(const Store& store, const Sequences& sequences, const Heads<const float>& q, const float* lse,
             const Observed& observed, float softmax_scale, int64_t window, const Impl<Kernels>& impl,
             const Sinks& sinks, std::span<const int64_t> which);

// Angles of T tokens, or of all tokens of a varlen call: cos, sin [T, D], sin with the sign of the swap; null: no token
// is turned.
struct Rotation {
    const float* cos;
    const float* sin;
};

// Stores k (turned) and v as the last tokens of each sequence, and turns q into q_out, if it has any heads. With a
// residual, groups of tokens that leave it are encoded.
// slots: null, or [sequences, kv heads]: the slot of each head that the one new token of a sequence takes instead
void append(Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<const float>& k,
            const Heads<const float>& v, const Rotation& rotation, const Heads<float>& q_out, const Impl<Kernels>& impl,
            const int64_t* slots = nullptr);

// `append` and `attend`. With a residual, a call may bring more tokens than `attend` takes at once: the tokens of a
// sequence pass in parts. The results are the same as if the tokens came one by one.
Isa append_attend(Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<const float>& k,
                  const Heads<const float>& v, const Rotation& rotation, const Heads<float>& q_out,
                  const Heads<float>& out, float softmax_scale, int64_t window, const Impl<Kernels>& impl,
                  const Sinks& sinks = {}, const int64_t* slots = nullptr, const Observed& observed = {});

// For stores with a residual: sequence b holds its first held[b] tokens from now on. Encoded tokens that are within the
// residual again are decoded and rounded to float16.
void truncate(Store& store, const Sequences& sequences, const int64_t* held, const Impl<Kernels>& impl);

// Moves the tokens that are kept to the front: slot i of a head then holds the token of slot keep[b, g, i]. In place.
// keep: [sequences, kv heads, count], rising, then -1 if a head keeps fewer; the same for all heads of a sequence if
// they share scales (per_tensor)
void compact(Store& store, const Sequences& sequences, const int64_t* keep, int64_t count);

// Rows of all heads' latents in pages [pages, page_size, row].
struct Latents {
    LatentShape shape;
    const std::byte* data;
    int64_t row_bytes;
    bool is_exact = false;  // Whether no tiles may multiply them, as they round more
};

// Results of attention over latents besides the output; null: not asked for.
struct LatentObserved {
    float* lse = nullptr;   // [B, H]
    float* mass = nullptr;  // [B, slots], summed over all heads; 0 in slots that the query does not see
    int64_t slots = 0;
};

// out [B, H, value_dim] = softmax(q row^T * softmax_scale) row[: value_dim] over the tokens of each sequence, its last
// `window` if that is above 0, for one query [head_dim] of each head; q, out contiguous. Returns the kernel that ran.
Isa attend_latents(const Latents& latents, const Sequences& sequences, const float* q, int64_t heads, float* out,
                   float softmax_scale, int64_t window, const Impl<Kernels>& impl, const LatentObserved& observed = {});

// k, v [B, G, S, D] as they are read, of the tokens first .. first + S - 1 of each sequence
void read(const Store& store, const Sequences& sequences, const Heads<float>& k, const Heads<float>& v,
          int64_t first = 0);

}  // namespace qk::attention
