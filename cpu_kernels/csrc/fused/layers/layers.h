// Decoder layers one after the other without leaving C++: a decode step without the embedding and the head.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fused/attention/step.h"
#include "fused/group/group.h"

namespace qk::fused {

// The implementations of a layer's steps.
struct LayerChoices {
    AttentionChoices attention;
    FeedForwardChoices feed_forward;         // for all tokens of the call
    FeedForwardChoices last_feed_forward;    // for the last of each sequence
};

struct Layer {
    const Group* qkv;
    const Group* output;
    const Group* gate_up;
    const Group* down;
    Norm attention_norm, feed_forward_norm;
    HeadNorms head_norms;
    attention::Store* store;
    attention::Sequences sequences;  // of all layers the same new tokens
    const int64_t* slots;            // null, or as `append` takes them
    attention::Observed observed;
    std::optional<BlockChoice> choice;
    std::shared_ptr<const LayerChoices> choices;
};

// The shared data of all layers of a call.
struct Past {
    attention::Rotation rotation;
    float softmax_scale;
    int64_t window;
    SinkAngles sinks;
    // Called before each layer with its number, for weights that come and go; may be empty. Its exceptions end the
    // call.
    std::function<void(size_t)> before_layer;
    // If the layers hold some input features of `output` and `down` alone: adds the products x [rows, K] of all ranks
    // in place, before the residual comes; may be empty. Its exceptions end the call.
    std::function<void(float* x, int64_t rows)> add_ranks = {};
};

// x [B * T, K] -> out [B * T, K], through every layer, of which there is one or more; the stores are equal in their
// pages. last_only: out [B, K] of each sequence's last token, whose net is the only one that the last layer needs.
void run_layers(std::span<const Layer> layers, const Rows& x, const Past& past, bool last_only, float* out);

}  // namespace qk::fused
