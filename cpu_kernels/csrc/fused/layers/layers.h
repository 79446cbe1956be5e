// Decoder layers one after the other without leaving C++: what a decode step is but for the embedding and the head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fused/attention/step.h"
#include "fused/group/group.h"

namespace qk::fused {

struct Layer {
    const Group* qkv;
    const Group* output;
    const Group* gate_up;
    const Group* down;
    Norm attention_norm, feed_forward_norm;
    HeadNorms head_norms;
    attention::Store* store;
    AttentionChoices attention_choices;
    FeedForwardChoices feed_forward_choices;
};

// What all layers of a call share.
struct Past {
    attention::Sequences sequences;
    attention::Rotation rotation;
    float softmax_scale;
    int64_t window;
};

// x [B * T, K] -> out [B * T, K], through every layer; the stores are alike in their pages.
void run_layers(std::span<const Layer> layers, const Rows& x, const Past& past, float* out);

}  // namespace qk::fused
