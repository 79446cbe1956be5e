// The attention half of a decoder layer as one call: norm, q, k and v, rotation, store, attention, output, residual.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attention/attention.h"
#include "fused/attention/choice.h"
#include "fused/group/group.h"

namespace qk::fused {

// Norms of each head before its rotation, [D] each; null: no norm.
struct HeadNorms {
    const float* q;
    const float* k;
    float eps;
};

// The first tokens that each query sees in addition to its window, and the angles by which queries meet their keys; see
// attention::Sinks.
struct SinkAngles {
    int64_t count = 0;
    attention::Rotation rotation{};
};

struct AttentionStep {
    const Group* qkv;     // q, k and v
    const Group* output;  // one
    Rows x;               // [B * T, K], of a varlen call [N, K]
    std::optional<Norm> norm;
    HeadNorms head_norms;
    attention::Store* store;
    attention::Sequences sequences;  // whose ends include the new tokens
    attention::Rotation rotation;
    float softmax_scale;
    int64_t window;
    SinkAngles sinks = {};
    const int64_t* slots = nullptr;    // as `append` takes them
    attention::Observed observed = {};  // the mass that is asked for
    const BlockChoice* choice = nullptr;  // of the only new token of one sequence; null: it reads all pages
};

// The chosen implementations, decided while the environment may be read.
struct AttentionChoices {
    std::vector<linear::Choice> qkv, output;
    RowSteps steps;
    const Impl<attention::Kernels>* attention;
};

// out [rows of x, N] = residual + attention(norm(x)) @ output^T (+ bias); residual may have no data.
void attention_step(const AttentionStep& step, const Rows& residual, float* out, const AttentionChoices& choices);

}  // namespace qk::fused
