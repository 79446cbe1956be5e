#include "fused/layers/layers.h"

#include <algorithm>

#include "scratch.h"

namespace qk::fused {
namespace {

// half(residual, out) as one rank computes it; of several, their products are added first.
template <class Half>
void with_ranks(const Past& past, const Rows& x, float* out, const Half& half) {
    if (!past.add_ranks) {
        half(x, out);
        return;
    }
    half(Rows{}, out);
    past.add_ranks(out, x.count);
    for (int64_t row = 0; row < x.count; row++)
        for (int64_t i = 0; i < x.size; i++) out[row * x.size + i] += x[row][i];
}

void attend(const Layer& layer, const Rows& x, const Past& past, float* out) {
    const AttentionStep step{layer.qkv,
                             layer.output,
                             x,
                             layer.attention_norm,
                             layer.head_norms,
                             layer.store,
                             layer.sequences,
                             past.rotation,
                             past.softmax_scale,
                             past.window,
                             past.sinks,
                             layer.slots,
                             layer.observed,
                             layer.choice ? &*layer.choice : nullptr};
    with_ranks(past, x, out,
               [&](const Rows& residual, float* to) { attention_step(step, residual, to, layer.choices->attention); });
}

void feed_forward(const Layer& layer, const Rows& x, const Past& past, float* out, const FeedForwardChoices& choices) {
    with_ranks(past, x, out, [&](const Rows& residual, float* to) {
        feed_forward(*layer.gate_up, *layer.down, x, layer.feed_forward_norm, residual, to, choices);
    });
}

// The last row of each sequence; copied to `out` if each has its own number of rows.
Rows last_of(const Rows& rows, const attention::Sequences& sequences, float* out) {
    if (!sequences.cu_seqlens) {
        const int64_t tokens = rows.count / sequences.count;
        return {rows[tokens - 1], sequences.count, rows.size, tokens * rows.stride};
    }
    for (int64_t b = 0; b < sequences.count; b++)
        std::copy_n(rows[sequences.cu_seqlens[b + 1] - 1], rows.size, out + b * rows.size);
    return {out, sequences.count, rows.size, rows.size};
}

}  // namespace

void run_layers(std::span<const Layer> layers, const Rows& x, const Past& past, bool last_only, float* out) {
    // The stream goes to and fro: attention writes one half of the memory, the net the other.
    thread_local Scratch scratch;
    const auto half = static_cast<size_t>(x.count * x.size);
    float* const attended = scratch.floats(2 * half);
    float* const stream = attended + half;
    const Rows attended_rows{attended, x.count, x.size, x.size}, stream_rows{stream, x.count, x.size, x.size};

    const auto begin = [&](size_t i) {
        if (past.before_layer) past.before_layer(i);
    };
    for (size_t i = 0; i + 1 < layers.size(); i++) {
        begin(i);
        attend(layers[i], i == 0 ? x : stream_rows, past, attended);
        feed_forward(layers[i], attended_rows, past, stream, layers[i].choices->feed_forward);
    }
    const Layer& last = layers.back();
    begin(layers.size() - 1);
    attend(last, layers.size() == 1 ? x : stream_rows, past, attended);
    if (!last_only) {
        feed_forward(last, attended_rows, past, out, last.choices->feed_forward);
    } else if (!last.gate_up->shares() && !last.down->shares()) {
        feed_forward(last, last_of(attended_rows, last.sequences, stream), past, out, last.choices->last_feed_forward);
    } else {  // the scale of its input is that of all tokens
        feed_forward(last, attended_rows, past, stream, last.choices->feed_forward);
        const Rows wanted = last_of(stream_rows, last.sequences, attended);
        for (int64_t b = 0; b < wanted.count; b++) std::copy_n(wanted[b], x.size, out + b * x.size);
    }
    scratch.trim();
}

}  // namespace qk::fused
