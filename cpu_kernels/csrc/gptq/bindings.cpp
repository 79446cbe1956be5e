#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checks.h"
#include "gptq/gptq.h"

namespace qk::gptq {
namespace {

using namespace nb::literals;

const Impl<Kernels>& chosen(const std::optional<std::string>& isa) {
    return choose("gptq", table(), isa ? std::optional<std::string_view>(*isa) : std::nullopt);
}

// The only row of a new array.
template <class T>
nb::object row_of(const NewArray<T>& made) {
    return made.array.attr("__getitem__")(0);
}

// A permutation of 0..size-1
std::vector<int64_t> order_of(const Array& order, int64_t size) {
    require_vector(order, "order", nb::dtype<int64_t>(), "int64 [K]");
    const auto* data = static_cast<const int64_t*>(order.data());
    std::vector<bool> seen(static_cast<size_t>(size));
    bool complete = static_cast<int64_t>(order.shape(0)) == size;
    for (int64_t i = 0; complete && i < size; i++) {
        complete = data[i] >= 0 && data[i] < size && !seen[data[i]];
        if (complete) seen[data[i]] = true;
    }
    if (!complete) throw std::invalid_argument("order: expected each of 0 to " + std::to_string(size - 1) + " once");
    return {data, data + size};
}

std::shared_ptr<Factor> factorize(const Array& hessian, const Array& diagonal, const Array& order,
                                  const std::optional<std::string>& isa) {
    require_matrix(hessian, "hessian", nb::dtype<float>(), "float32 [K, K]");
    const auto size = static_cast<int64_t>(hessian.shape(0));
    require_columns(hessian, "hessian", size);
    require_vector(diagonal, "diagonal", nb::dtype<float>(), "float32 [K]");
    if (size == 0 || static_cast<int64_t>(diagonal.shape(0)) != size)
        throw std::invalid_argument("diagonal: got " + describe(diagonal) + ", expected float32 [" +
                                    std::to_string(size) + "], one or more");
    const std::vector<int64_t> columns = order_of(order, size);
    auto factor = std::make_shared<Factor>(size, chosen(isa).kernels);
    const auto* h = static_cast<const float*>(hessian.data());
    const auto* d = static_cast<const float*>(diagonal.data());
    nb::gil_scoped_release release;
    return factor->compute(h, d, columns.data()) ? factor : nullptr;
}

nb::object diagonal_of(const Factor& factor) {
    const NewArray<float> values(1, factor.size());
    for (int64_t c = 0; c < factor.size(); c++) values.data[c] = factor.diagonal(c);
    return row_of(values);
}

nb::object coefficients_of(const Factor& factor, int64_t begin, int64_t end) {
    if (begin < 0 || end <= begin || end > factor.size())
        throw std::invalid_argument("columns: got " + std::to_string(begin) + " to " + std::to_string(end) +
                                    ", expected a range within 0 to " + std::to_string(factor.size()));
    const NewArray<float> values(end, end - begin);
    {
        nb::gil_scoped_release release;
        factor.coefficients(begin, end, values.data);
    }
    return values.array;
}

nb::object search_grid(const Array& values, const Array& cost, const Array& scale, const Array& lowest, int steps,
                       const std::optional<std::string>& isa) {
    require_matrix(values, "values", nb::dtype<float>(), "float32 [N, columns]");
    require_vector(cost, "cost", nb::dtype<float>(), "float32 [columns]");
    require_matrix(scale, "scale", nb::dtype<float>(), "float32 [trials, N]");
    require_matrix(lowest, "lowest", nb::dtype<float>(), "float32 [trials, N]");
    const bool fits = cost.shape(0) == values.shape(1) && scale.shape(1) == values.shape(0) && scale.shape(0) >= 1 &&
                      lowest.shape(0) == scale.shape(0) && lowest.shape(1) == scale.shape(1) && steps >= 1;
    if (!fits)
        throw std::invalid_argument("values, cost, scale, lowest: got " + describe(values) + ", " + describe(cost) +
                                    ", " + describe(scale) + ", " + describe(lowest) +
                                    ", expected [N, columns], [columns] and twice [trials, N]");
    const Kernels& kernels = chosen(isa).kernels;
    const NewArray<int64_t> best(1, static_cast<int64_t>(values.shape(0)));
    const auto floats = [](const Array& array) { return static_cast<const float*>(array.data()); };
    {
        nb::gil_scoped_release release;
        search(floats(values), static_cast<int64_t>(values.shape(0)), static_cast<int64_t>(values.shape(1)),
               floats(cost), floats(scale), floats(lowest), static_cast<int64_t>(scale.shape(0)),
               static_cast<float>(steps), best.data, kernels);
    }
    return row_of(best);
}

class BoundFeedback {
public:
    BoundFeedback(std::shared_ptr<const Factor> factor, const Array& weight, const Array& order,
                  const std::optional<std::string>& isa)
        : weight_(weight) {
        require_matrix(weight, "weight", nb::dtype<float>(), "float32 [N, K]");
        require_columns(weight, "weight", factor->size());
        auto columns = order_of(order, factor->size());
        feedback_.emplace(std::move(factor), static_cast<const float*>(weight.data()),
                          static_cast<int64_t>(weight.shape(0)), std::move(columns), chosen(isa));
    }

    nb::object expect(int64_t end) {
        const NewArray<float> out(feedback_->num_rows(), columns_up_to(end));
        {
            nb::gil_scoped_release release;
            feedback_->expect(end, out.data);
        }
        return out.array;
    }

    nb::object round(int64_t end, const Array& scale, const Array& offset, int qmin, int qmax) {
        const int64_t num_rows = feedback_->num_rows(), num_columns = columns_up_to(end);
        require_matrix(scale, "scale", nb::dtype<float>(), "float32 [N, S]");
        require_matrix(offset, "offset", nb::dtype<float>(), "float32 [N, S]");
        const auto num_scales = static_cast<int64_t>(scale.shape(1));
        if (static_cast<int64_t>(scale.shape(0)) != num_rows || scale.shape(0) != offset.shape(0) ||
            scale.shape(1) != offset.shape(1) || num_scales < 1 || num_columns % num_scales)
            throw std::invalid_argument("scale and offset: got " + describe(scale) + " and " + describe(offset) +
                                        ", expected [" + std::to_string(num_rows) + ", S], S a divisor of " +
                                        std::to_string(num_columns));
        if (qmin < -128 || qmax > 127 || qmin >= qmax)
            throw std::invalid_argument("codes: got " + std::to_string(qmin) + " to " + std::to_string(qmax) +
                                        ", expected within -128 to 127");
        const NewArray<int8_t> q(num_rows, num_columns);
        const auto* scales = static_cast<const float*>(scale.data());
        const auto* offsets = static_cast<const float*>(offset.data());
        Isa ran;
        {
            nb::gil_scoped_release release;
            ran = feedback_->round(end, scales, offsets, num_scales, static_cast<float>(qmin), static_cast<float>(qmax),
                                   q.data);
        }
        last_isa_ = ran;  // with the GIL, as it is read
        return q.array;
    }

    std::optional<std::string> last_isa() const {
        return last_isa_ ? std::optional<std::string>(name_of(*last_isa_)) : std::nullopt;
    }

private:
    // Columns that are next; none where Feedback is about to refuse `end`.
    int64_t columns_up_to(int64_t end) const {
        return std::max<int64_t>(0, std::clamp<int64_t>(end, 0, feedback_->num_columns()) - feedback_->num_rounded());
    }

    Array weight_;  // keeps the memory
    std::optional<Feedback> feedback_;
    std::optional<Isa> last_isa_;
};

}  // namespace

void bind(nb::module_& m) {
    nb::class_<Factor>(m, "GptqFactor", "R of H = R R^T, upper triangular; cpu_kernels.gptq says more.")
        .def_prop_ro("diagonal", diagonal_of, "R[c][c], float32 [K]")
        .def("coefficients", coefficients_of, "begin"_a, "end"_a,
             "R[i][c] / R[c][c] for i < end, begin <= c < end; 0 where i >= c. float32 [end, end - begin]");
    m.def("gptq_factorize", factorize, "hessian"_a, "diagonal"_a, "order"_a, "isa"_a.none() = nb::none(),
          "The GptqFactor of a Hessian in this order of columns; None where it is not positive definite.\n\n"
          "hessian  [K, K] float32, symmetric; its diagonal is not looked at\n"
          "diagonal [K] float32, the diagonal instead, damping included\n"
          "order    [K] int64, a permutation: column c of the factor is column order[c] of the Hessian\n"
          "raises   ValueError (shape, strides, order), TypeError (dtype), RuntimeError (isa not on this machine)");
    m.def("gptq_search_grid", search_grid, "values"_a, "cost"_a, "scale"_a, "lowest"_a, "steps"_a,
          "isa"_a.none() = nb::none(),
          "Which of several grids has the least sum of cost * error^2 for each row, the first where several have\n"
          "it.\n\n"
          "values         [N, columns] float32\n"
          "cost           [columns] float32\n"
          "scale, lowest  [trials, N] float32: the grid is scale * n, scale above 0, n in lowest..lowest + steps\n"
          "returns        [N] int64");
    nb::class_<BoundFeedback>(m, "GptqFeedback",
                              "The rows of a weight [N, K] float32, rounded some columns at a time in the factor's\n"
                              "order, with the errors of the columns done fed into those to come.")
        .def(nb::init<std::shared_ptr<const Factor>, const Array&, const Array&, const std::optional<std::string>&>(),
             "factor"_a, "weight"_a, "order"_a, "isa"_a.none() = nb::none())
        .def("expect", &BoundFeedback::expect, "end"_a,
             "The next columns up to `end` as an infinitely fine grid would leave them, float32 [N, columns].")
        .def("round", &BoundFeedback::round, "end"_a, "scale"_a, "offset"_a, "qmin"_a, "qmax"_a,
             "Rounds the next columns up to `end` to scale * q + offset.\n\n"
             "scale, offset   [N, S] float32, each for columns / S of them\n"
             "returns         q [N, columns] int8 in qmin..qmax")
        .def_prop_ro("last_isa", &BoundFeedback::last_isa, "What the kernel of the last round said it is.");
}

}  // namespace qk::gptq
