// The layers of a decoder with absorbed latent attention as one call, its projections and nets included.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "fused/group/group.h"
#include "mla/step.h"

namespace qk::mla {

// One layer: attention, then a net, each with its norm and its residual.
struct Layer {
    const fused::Group* down;  // of x: queries, or their latent if there is q_up; the latent of keys and values
    const fused::Group* q_up;  // of the queries' latent, or null
    const fused::Group* output;
    fused::Norm norm, q_norm, kv_norm;  // of x, of the queries' latent, of that of keys and values
    const HeadMatrices* keys;
    const HeadMatrices* values;
    attention::Latents latents;
    attention::Sequences sequences;        // of M new tokens, as in Step
    const int64_t* slots;                  // [M], or null
    attention::LatentObserved observed;

    // The chosen implementations, decided while the environment may be read.
    std::vector<linear::Choice> down_choices, q_up_choices, output_choices;
    // out [M, K] = x plus the net
    std::function<void(const fused::Rows& x, float* out)> net;
};

// Shared by all layers, as in Step.
struct Past {
    attention::Rotation rotation;
    float softmax_scale;
    int64_t window;
};

// x [M, K] -> out [M, K]; the latents then hold the M tokens in every layer.
void run_layers(std::span<const Layer> layers, const fused::Rows& x, const Past& past, float* out,
                const Choices& choices);

}  // namespace qk::mla
