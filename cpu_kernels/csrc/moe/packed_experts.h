// The Python objects that hold experts and their router; other bindings take them as arguments.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checks.h"
#include "fused/group/linear_group.h"
#include "linear/packed_linear.h"
#include "moe/call.h"
#include "moe/experts.h"
#include "moe/router.h"

namespace qk::moe {

class Router {
public:
    Router(const fused::LinearGroup& linear, int64_t num_chosen, const std::string& scoring, int64_t num_groups,
           int64_t groups_per_token, int64_t best_of_group, const std::optional<Array>& choice_bias, bool is_normed,
           float factor);

    nb::tuple choose(const Array& logits) const;

    const fused::Group& group() const { return linear_->group(); }
    const Routing& routing() const { return routing_; }

private:
    const fused::LinearGroup* linear_;  // Python keeps it alive
    Routing routing_;
};

class PackedExperts {
public:
    using Linears = std::vector<const linear::PackedLinear*>;

    PackedExperts(const Linears& gate, const Linears& up, const Linears& down, int64_t num_shared);

    const Experts& experts() const { return experts_; }

    nb::object forward(const Array& x, const Array& chosen, const Array& weights, const std::optional<std::string>& isa,
                       const std::optional<std::string>& path, std::optional<nb::object> out, int64_t begin,
                       std::optional<int64_t> end);
    nb::object feed_forward(const Router& router, const Array& x, const std::optional<Array>& norm_weight, float eps,
                            const std::optional<Array>& residual);
    std::optional<nb::tuple> last_isa() const;

    // Why these cannot run as one, or nothing.
    static std::optional<std::string> obstacle(const Linears& gate, const Linears& up, const Linears& down,
                                               int64_t num_shared);

private:
    Choices choices_of(const Array& x, const Array& chosen, const Array& weights) const;

    Experts experts_;
    std::atomic<std::optional<Ran>> ran_{};
};

// Runs the step with the GIL held: NetChoices::reading.
void with_environment(const std::function<void()>& step);

// Throws std::invalid_argument unless the router chooses among these experts and has the same input size.
void require_router(const Router& router, const Experts& experts);

}  // namespace qk::moe
