#include "fused/layers/layers.h"

#include <algorithm>

#include "buffer.h"

namespace qk::fused {

void run_layers(std::span<const Layer> layers, const Rows& x, const Past& past, float* out) {
    // The stream goes back and forth between its two halves: attention writes `middle`, the net writes `out`.
    thread_local Buffer kept;  // a decode step allocates nothing
    const size_t needed = static_cast<size_t>(x.count * x.size) * sizeof(float);
    if (kept.size() < needed) kept = Buffer(needed);
    float* const middle = reinterpret_cast<float*>(kept.data());
    const Rows middle_rows{middle, x.count, x.size, x.size};
    Rows stream = x;
    for (const Layer& layer : layers) {
        const AttentionStep step{layer.qkv,       layer.output, stream,         layer.attention_norm,
                                 layer.head_norms, layer.store,  past.sequences, past.rotation,
                                 past.softmax_scale, past.window};
        attention_step(step, stream, middle, layer.attention_choices);
        feed_forward(*layer.gate_up, *layer.down, middle_rows, layer.feed_forward_norm, middle_rows, out,
                     layer.feed_forward_choices);
        stream = {out, x.count, x.size, x.size};
    }
    if (layers.empty())
        for (int64_t token = 0; token < x.count; token++) std::copy_n(x[token], x.size, out + token * x.size);
}

}  // namespace qk::fused
