// The Python object that holds a packed weight; other bindings take it as an argument.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "checks.h"
#include "linear/weight.h"

namespace qk::linear {

class PackedLinear {
public:
    PackedLinear(const std::string& format, nb::dict parts, std::pair<int64_t, int64_t> shape, bool exact);

    std::shared_ptr<const Weight> shared_weight() const { return weight_; }

    nb::object matmul(const Array& x, const std::optional<std::string>& isa, const std::optional<std::string>& path,
                      std::optional<nb::object> out);
    nb::object rows(const Array& index) const;
    static nb::object bytes(nb::handle self);
    nb::tuple choice(int64_t num_tokens, const std::optional<std::string>& isa,
                     const std::optional<std::string>& path) const;
    nb::tuple shape() const { return nb::make_tuple(weight_->num_rows(), weight_->row_size()); }
    std::string format() const { return std::string(weight_->format()); }
    size_t nbytes() const { return weight_->nbytes(); }
    std::optional<std::string> last_isa() const;

private:
    std::shared_ptr<const Weight> weight_;
    std::atomic<std::optional<Isa>> last_isa_{};
};

}  // namespace qk::linear
