// All experts of a layer as two fused tasks: gate and up with SiLU(gate) * up behind them, then down with the
// weighted sum. Defined by experts_ref in cpu_kernels/moe.py.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linear/weight.h"

namespace qk::moe {

// down [K, I] @ (silu(gate [I, K] @ x) * (up [I, K] @ x)); I may differ among the experts of a layer.
struct Expert { std::shared_ptr<const linear::Weight> gate, up, down; };

class Experts {
public:
    // The last num_shared of the experts are those that every token passes through with weight 1.
    // Throws std::invalid_argument with the text of `obstacle`.
    Experts(std::vector<Expert> experts, int64_t num_shared);

    // Why these do not run as one, or nothing: shapes that do not follow each other, inputs that are rounded
    // differently from expert to expert, or with a scale that all tokens of a call share.
    static std::optional<std::string> obstacle(const std::vector<Expert>& experts, int64_t num_shared);

    const std::vector<Expert>& experts() const { return experts_; }
    int64_t num_shared() const { return num_shared_; }
    int64_t num_routed() const { return static_cast<int64_t>(experts_.size()) - num_shared_; }
    int64_t hidden_size() const { return experts_.front().gate->row_size(); }
    size_t nbytes() const;

private:
    std::vector<Expert> experts_;
    int64_t num_shared_;
};

}  // namespace qk::moe
