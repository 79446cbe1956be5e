// Attention of new tokens over a store of keys and values, and their way into it.
#pragma once

#include <cstdint>

#include "attention/kernels.h"
#include "attention/store.h"

namespace qk::attention {

// [B, heads, T, D] float32 with any strides but the last, which is 1; strides in floats. Of a varlen call (see
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

// The first `count` tokens, that each query sees beside its window, and q [B, heads, T, D] as it meets them: positions
// of what is between the two do not count, so it is turned otherwise there.
struct Sinks {
    int64_t count = 0;
    Heads<const float> q{};
};

// out = softmax(q k^T * softmax_scale) v. Queries are the new tokens of each sequence and see none after themselves,
// and of those before only window - 1, if window is above 0, and sinks. Returns what ran.
Isa attend(const Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<float>& out,
           float softmax_scale, int64_t window, const Impl<Kernels>& impl, const Sinks& sinks = {});

// Angles of T tokens, or of all of a varlen call: cos, sin [T, D], sin with the sign of the swap; null: none turns.
struct Rotation {
    const float* cos;
    const float* sin;
};

// Stores k (turned) and v as the last tokens of each sequence, and turns q into q_out, if it has any heads.
void append(Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<const float>& k,
            const Heads<const float>& v, const Rotation& rotation, const Heads<float>& q_out,
            const Impl<Kernels>& impl);

// Rows of all heads' latents in pages [pages, page_size, row].
struct Latents {
    LatentShape shape;
    const std::byte* data;
    int64_t row_bytes;
};

// out [B, H, value_dim] = softmax(q row^T * softmax_scale) row[: value_dim] over the tokens of each sequence, its last
// `window` if that is above 0, for one query [head_dim] of each head; q, out contiguous. Returns what ran.
Isa attend_latents(const Latents& latents, const Sequences& sequences, const float* q, int64_t heads, float* out,
                   float softmax_scale, int64_t window, const Impl<Kernels>& impl);

// k, v [B, G, S, D] as they are read, of the first `tokens` tokens of each sequence
void read(const Store& store, const Sequences& sequences, const Heads<float>& k, const Heads<float>& v);

}  // namespace qk::attention
