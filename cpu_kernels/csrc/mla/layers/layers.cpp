#include "mla/layers/layers.h"

#include "scratch.h"

namespace qk::mla {
namespace {

// out [M, K] = x plus attention
void attend(const Layer& layer, const fused::Rows& x, const Past& past, float* out, const Choices& choices) {
    const fused::RowSteps& steps = choices.rows->kernels;
    const int64_t count = x.count, first_size = layer.down->num_rows(0), latent_size = layer.down->num_rows(1);
    const int64_t q_size = layer.q_up ? layer.q_up->num_rows(0) : first_size;
    const int64_t out_size = layer.output->row_size();

    thread_local Scratch scratch;
    float* const first = scratch.floats(static_cast<size_t>(count * (first_size + latent_size + q_size + out_size)));
    float* const latent = first + count * first_size;
    float* const attended = latent + count * latent_size;
    float* q = first;

    float* const projected[] = {first, latent};
    layer.down->multiply(source_of(x, layer.norm, steps), count, layer.down_choices, projected, {});
    if (layer.q_up) {
        q = attended + count * out_size;
        float* const raised[] = {q};
        const fused::Rows queries{first, count, first_size, first_size};
        layer.q_up->multiply(source_of(queries, layer.q_norm, steps), count, layer.q_up_choices, raised, {});
    }
    attend({layer.keys, layer.values, latent_size - layer.keys->outputs(), q, q_size, latent, latent_size,
            layer.kv_norm.weight, layer.kv_norm.eps, past.rotation, layer.latents, layer.sequences, past.softmax_scale,
            past.window, layer.slots, layer.observed},
           attended, choices);
    float* const outputs[] = {out};
    layer.output->multiply(source_of({attended, count, out_size, out_size}, std::nullopt, steps), count,
                           layer.output_choices, outputs, x);
    scratch.trim();
}

}  // namespace

void run_layers(std::span<const Layer> layers, const fused::Rows& x, const Past& past, float* out,
                const Choices& choices) {
    // The stream goes to and fro: attention writes one half of the memory, the net the other.
    thread_local Scratch scratch;
    const auto half = static_cast<size_t>(x.count * x.size);
    float* const attended = scratch.floats(2 * half);
    float* const stream = attended + half;
    const fused::Rows attended_rows{attended, x.count, x.size, x.size}, stream_rows{stream, x.count, x.size, x.size};
    for (size_t i = 0; i < layers.size(); i++) {
        attend(layers[i], i == 0 ? x : stream_rows, past, attended, choices);
        layers[i].net(attended_rows, i + 1 == layers.size() ? out : stream);
    }
    scratch.trim();
}

}  // namespace qk::mla
