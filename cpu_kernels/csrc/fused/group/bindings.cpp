#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "bindings.h"
#include "fused/group/linear_group.h"
#include "timeline.h"

namespace qk::fused {
namespace {

using namespace nb::literals;
using linear::PackedLinear;

using Weights = std::vector<std::shared_ptr<const linear::Weight>>;

Weights weights_of(const std::vector<const PackedLinear*>& linears) {
    Weights weights;
    for (const PackedLinear* packed : linears) {
        if (!packed) throw nb::type_error("linears: got None, expected PackedLinear");
        weights.push_back(packed->shared_weight());
    }
    return weights;
}

std::vector<std::vector<float>> values_of(const std::vector<std::optional<Array>>& biases) {
    std::vector<std::vector<float>> values;
    for (const auto& bias : biases) {
        values.emplace_back();
        if (!bias) continue;
        require_vector(*bias, "bias", nb::dtype<float>(), "float32 [N]");
        const auto* data = static_cast<const float*>(bias->data());
        values.back().assign(data, data + bias->shape(0));
    }
    return values;
}

}  // namespace

// ---- arguments

Source::Source(const Array& array, int64_t row_size, const std::optional<Array>& norm_weight, float eps)
    : x(rows_of(array, "x")) {
    require_columns(array, "x", row_size);
    if (norm_weight) norm = Norm{vector_of(*norm_weight, "norm_weight", row_size), eps};
}

Rows residual_of(const std::optional<Array>& array, int64_t num_tokens, int64_t num_rows) {
    if (!array) return {};
    const Rows residual = rows_of(*array, "residual");
    if (residual.count != num_tokens || residual.size != num_rows)
        throw std::invalid_argument("residual: got " + describe(*array) + ", expected float32 [" +
                                    std::to_string(num_tokens) + ", " + std::to_string(num_rows) + "]");
    return residual;
}

// ---- LinearGroup

LinearGroup::LinearGroup(const std::vector<const PackedLinear*>& linears,
                         const std::vector<std::optional<Array>>& biases)
    : group_(weights_of(linears), values_of(biases)) {}

nb::list LinearGroup::multiply(const Array& array, const std::optional<Array>& norm_weight, float eps,
                               const std::optional<Array>& residual) {
    const timeline::Scope calls(timeline::Part::calls);
    const Source source(array, group_.row_size(), norm_weight, eps);
    const int64_t num_tokens = source.x.count;
    if (residual && group_.size() != 1)
        throw std::invalid_argument("residual: got one for " + std::to_string(group_.size()) +
                                    " linears, expected a group of one");
    const Rows added = residual_of(residual, num_tokens, group_.num_rows(0));
    const RowSteps& steps = choose_steps(std::nullopt).kernels;
    const std::vector<linear::Choice> choices = group_.choose(num_tokens);
    nb::list outputs;
    std::vector<float*> y(group_.size());
    for (size_t i = 0; i < group_.size(); i++) outputs.append(empty_float32(num_tokens, group_.num_rows(i), &y[i]));
    std::vector<Isa> ran(group_.size());
    for (size_t i = 0; i < ran.size(); i++) ran[i] = choices[i].isa;
    {
        nb::gil_scoped_release release;
        if (num_tokens > 0)
            group_.multiply(source_of(source.x, source.norm, steps), num_tokens, choices, y, added, ran);
    }
    last_isas_ = std::move(ran);
    return outputs;
}

std::vector<std::string> LinearGroup::last_isas() const {
    std::vector<std::string> names;
    for (const Isa isa : last_isas_) names.emplace_back(name_of(isa));
    return names;
}

// ---- feed-forward nets

void require_feed_forward(const Group& first, const Group& second) {
    if (first.size() != 2 || second.size() != 1)
        throw std::invalid_argument("feed_forward: got groups of " + std::to_string(first.size()) + " and " +
                                    std::to_string(second.size()) + " linears, expected 2 and 1");
    if (first.num_rows(0) != second.row_size() || first.num_rows(1) != second.row_size())
        throw std::invalid_argument("feed_forward: gate has " + std::to_string(first.num_rows(0)) + " rows, up " +
                                    std::to_string(first.num_rows(1)) + ", expected " +
                                    std::to_string(second.row_size()) + " as down reads them");
}

static nb::object run_feed_forward(const LinearGroup& gate_up, const LinearGroup& down, const Array& array,
                                   const std::optional<Array>& norm_weight, float eps,
                                   const std::optional<Array>& residual) {
    const timeline::Scope calls(timeline::Part::calls);
    const Group& first = gate_up.group();
    const Group& second = down.group();
    require_feed_forward(first, second);
    const Source source(array, first.row_size(), norm_weight, eps);
    const int64_t num_tokens = source.x.count;
    const Rows added = residual_of(residual, num_tokens, second.num_rows(0));
    const FeedForwardChoices choices{first.choose(num_tokens), second.choose(num_tokens),
                                     choose_steps(std::nullopt).kernels};
    float* out = nullptr;
    nb::object result = empty_float32(num_tokens, second.num_rows(0), &out);
    {
        nb::gil_scoped_release release;
        feed_forward(first, second, source.x, source.norm, added, out, choices);
    }
    return result;
}

void bind_groups(nb::module_& m) {
    nb::class_<LinearGroup>(m, "LinearGroup",
                            "Packed weights that read the same input: one call, whatever their formats.\n\n"
                            "linears  PackedLinear [N, K] each, one K; they are shared, not copied\n"
                            "biases   float32 [N] or None for each\n"
                            "raises   ValueError (shape), TypeError (dtype)")
        .def(nb::init<const std::vector<const PackedLinear*>&, const std::vector<std::optional<Array>>&>(), "linears"_a,
             "biases"_a)
        .def("multiply", &LinearGroup::multiply, "x"_a, "norm_weight"_a = nb::none(), "eps"_a = 0.0f,
             "residual"_a = nb::none(),
             "norm(x) @ weight.T (+ bias) (+ residual) for each weight, as cpu_kernels.fused defines it.\n\n"
             "x            [M, K] float32, each row contiguous\n"
             "norm_weight  [K] float32: x is normed with it and eps where it is read; None: it is not\n"
             "residual     [M, N] float32, for a group of one\n"
             "returns      list of [M, N] float32\n"
             "raises       ValueError (shape, strides), TypeError (dtype)")
        .def_prop_ro(
            "shares", &LinearGroup::shares,
            "Whether the tokens of a call share a scale of the input, so that a token's result depends on others.")
        .def_prop_ro("last_isas", &LinearGroup::last_isas,
                     "What the kernels of the last multiply said they are, one name a weight.");
    m.def("feed_forward", run_feed_forward, "gate_up"_a, "down"_a, "x"_a, "norm_weight"_a = nb::none(), "eps"_a = 0.0f,
          "residual"_a = nb::none(),
          "silu_mul(gate, up) @ down.T (+ bias) (+ residual); gate and up are gate_up's products with norm(x).\n\n"
          "gate_up      LinearGroup of two [F, K]\n"
          "down         LinearGroup of one [N, F]\n"
          "x, norm_weight, eps, raises    as for LinearGroup.multiply\n"
          "residual     [M, N] float32\n"
          "returns      [M, N] float32");
}

}  // namespace qk::fused
