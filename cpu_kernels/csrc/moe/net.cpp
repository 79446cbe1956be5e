#include "moe/net.h"

#include <algorithm>

#include "scratch.h"
#include "thread_pool.h"

namespace qk::moe {
namespace {

template <class Task>
void for_tokens(int64_t num_tokens, int64_t row_size, const Task& task) {
    if (num_tokens * row_size >= parallel_size)
        thread_pool()->run(num_tokens, task);
    else
        for (int64_t token = 0; token < num_tokens; token++) task(token);
}

}  // namespace

std::optional<Ran> feed_forward(const Net& net, const fused::Rows& x, const std::optional<fused::Norm>& norm,
                                const fused::Rows& residual, float* out, const NetChoices& choices) {
    const int64_t size = x.size, num_experts = net.routing->num_experts, num_chosen = net.routing->num_chosen;
    const int64_t most = std::min(call_tokens, x.count);
    thread_local Scratch scratch;
    const int64_t floats = most * (size + num_experts + num_chosen);
    auto* const experts = reinterpret_cast<int64_t*>(
        scratch.get(static_cast<size_t>(most * num_chosen) * sizeof(int64_t) + static_cast<size_t>(floats) * 4));
    auto* const rows = reinterpret_cast<float*>(experts + most * num_chosen);
    float* const logits = rows + most * size;
    float* const weights = logits + most * num_experts;
    std::optional<Ran> ran;
    for (int64_t first = 0; first < x.count; first += call_tokens) {
        const int64_t count = std::min(call_tokens, x.count - first);
        for_tokens(count, size, [&](int64_t token) {
            const float* from = x[first + token];
            if (norm)
                choices.steps.rms_norm(from, norm->weight, norm->eps, size, rows + token * size);
            else
                std::copy_n(from, size, rows + token * size);
        });
        const auto normed = [&](int64_t token, float*) -> const float* { return rows + token * size; };
        float* const y[] = {logits};
        net.router->multiply(normed, count, choices.router, y, {});
        for_tokens(count, num_experts * num_chosen, [&](int64_t token) {
            choose(*net.routing, logits + token * num_experts, experts + token * num_chosen,
                   weights + token * num_chosen);
        });
        std::optional<Call> call;
        choices.reading([&] {
            call.emplace(*net.experts, rows, Choices{experts, weights, count, num_chosen}, out + first * size,
                         std::nullopt, linear::Path::automatic,
                         Some{0, static_cast<int64_t>(net.experts->experts().size())});
        });
        ran = call->run();
        if (!residual.data) continue;
        for_tokens(count, size, [&](int64_t token) {
            const float* added = residual[first + token];
            float* sum = out + (first + token) * size;
            for (int64_t k = 0; k < size; k++) sum[k] += added[k];
        });
    }
    scratch.trim();
    return ran;
}

}  // namespace qk::moe
