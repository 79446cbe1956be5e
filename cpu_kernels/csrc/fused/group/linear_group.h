// The Python object that holds a group; other bindings take it as an argument.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fused/arguments.h"
#include "linear/packed_linear.h"

namespace qk::fused {

class LinearGroup {
public:
    LinearGroup(const std::vector<const linear::PackedLinear*>& linears,
                const std::vector<std::optional<Array>>& biases);

    const Group& group() const { return group_; }

    nb::list multiply(const Array& x, const std::optional<Array>& norm_weight, float eps,
                      const std::optional<Array>& residual);
    std::vector<std::string> last_isas() const;
    bool shares() const { return group_.shares(); }

private:
    Group group_;
    std::vector<Isa> last_isas_;  // read and written with the GIL held
};

// x [M, row_size] with the steps before a product, checked.
struct Source {
    Rows x;
    std::optional<Norm> norm;

    Source(const Array& x, int64_t row_size, const std::optional<Array>& norm_weight, float eps);
};

// Throws std::invalid_argument unless they are gate and up of a net, and its down.
void require_feed_forward(const Group& gate_up, const Group& down);

// [M, N], or no data; checked.
Rows residual_of(const std::optional<Array>& array, int64_t num_tokens, int64_t num_rows);

}  // namespace qk::fused
