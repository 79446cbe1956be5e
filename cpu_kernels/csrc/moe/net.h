// A layer's routed net as one call: norm, router, choice, experts, residual.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "fused/group/group.h"
#include "moe/call.h"
#include "moe/experts.h"
#include "moe/router.h"

namespace qk::moe {

// Tokens at a time. 1024 of them, at 8 experts each, 2048 and 768 wide, are 8192 * (5 + 3 KB) and 1024 * 5 KB, that
// is 72 MB, between the products. More tokens per expert, 64 of 128 experts, would save little.
inline constexpr int64_t call_tokens = 1024;

struct Net {
    const fused::Group* router;  // of one: logits [E]
    const Routing* routing;
    const Experts* experts;
};

// The implementations that run, decided where the environment may be read; which experts run is known later, so these
// are decided on by `reading`, which runs the given ones where the environment may be read.
struct NetChoices {
    std::vector<linear::Choice> router;
    fused::RowSteps steps;
    std::function<void(const std::function<void()>&)> reading;
};

// out [M, K] = experts(norm(x)) (+ residual). Returns how the last product ran, if any.
std::optional<Ran> feed_forward(const Net& net, const fused::Rows& x, const std::optional<fused::Norm>& norm,
                                const fused::Rows& residual, float* out, const NetChoices& choices);

}  // namespace qk::moe
