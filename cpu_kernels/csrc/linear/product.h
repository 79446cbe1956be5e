// The driver of every product: prepare the input once, then hand out panels of all its weights to the threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "linear/weight.h"

namespace qk::linear {

// Where a token's row [K] comes from. `scratch` has room for K floats; the row is there or in the caller's memory.
// A fused step computes it here (add + norm, SiLU x up), while it is in the L1, on the thread that rounds it.
using RowSource = std::function<const float*(int64_t token, float* scratch)>;

// silu(weight) * up as tokens that another product reads: weight->gates(*up, choice, *format).
struct Gated {
    const Weight* up;
    const InputFormat* format;
    std::byte* tokens;  // format->bytes(M)
};

struct Term {
    const Weight* weight;
    Choice choice;            // weight->choose(num_tokens, ...), made where the environment may be read
    float* y;                 // [M, y_stride], of which the weight's N columns are written
    int64_t y_stride;
    const float* bias;        // [N], or null
    const float* residual;    // [M, residual_stride] that is added (it may be y itself), or null
    int64_t residual_stride;
    Gated gated = {};         // in place of y if it has `up`
};

// y = x @ weight^T (+ bias) (+ residual) for each term; all read the same M rows of K.
// ran[i], if given, is the kernel that multiplied for terms[i].
void multiply(std::span<const Term> terms, int64_t num_tokens, int64_t row_size, const RowSource& row,
              std::span<Isa> ran = {});

// The same for M rows that are prepared already, as all weights' input(choice) has them.
void multiply_prepared(std::span<const Term> terms, int64_t num_tokens, std::byte* tokens, std::span<Isa> ran = {});

}  // namespace qk::linear
