#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "fused/arguments.h"
#include "linear/crossover.h"
#include "moe/net.h"
#include "moe/packed_experts.h"

namespace qk::moe {
namespace {

using Linears = PackedExperts::Linears;

Scoring parse_scoring(const std::string& name) {
    if (name == "softmax") return Scoring::softmax;
    if (name == "sigmoid") return Scoring::sigmoid;
    throw std::invalid_argument("scoring: got " + name + ", expected softmax or sigmoid");
}

std::vector<Expert> join(const Linears& gate, const Linears& up, const Linears& down) {
    if (gate.size() != up.size() || gate.size() != down.size())
        throw std::invalid_argument("experts: got " + std::to_string(gate.size()) + " gate, " +
                                    std::to_string(up.size()) + " up and " + std::to_string(down.size()) +
                                    " down, expected as many of each");
    std::vector<Expert> experts;
    for (size_t e = 0; e < gate.size(); e++) {
        if (!gate[e] || !up[e] || !down[e])
            throw nb::type_error(("expert " + std::to_string(e) + ": got None, expected PackedLinear").c_str());
        experts.push_back({gate[e]->shared_weight(), up[e]->shared_weight(), down[e]->shared_weight()});
    }
    return experts;
}

void require_rows(const Array& array, const char* name, int64_t rows) {
    if (static_cast<int64_t>(array.shape(0)) != rows)
        throw std::invalid_argument(std::string(name) + ": got " + describe(array) + ", expected " +
                                    std::to_string(rows) + " rows, one for each token of x");
}

}  // namespace

void with_environment(const std::function<void()>& step) {
    nb::gil_scoped_acquire acquire;
    step();
}

// ---- Router

Router::Router(const fused::LinearGroup& linear, int64_t num_chosen, const std::string& scoring, int64_t num_groups,
               int64_t groups_per_token, int64_t best_of_group, const std::optional<Array>& choice_bias, bool is_normed,
               float factor)
    : linear_(&linear) {
    if (group().size() != 1)
        throw std::invalid_argument("linear: got a group of " + std::to_string(group().size()) +
                                    " linears, expected one");
    const int64_t num_experts = group().num_rows(0);
    routing_ = {num_experts, num_chosen, parse_scoring(scoring), num_groups, groups_per_token, best_of_group, is_normed,
                factor,      {}};
    if (choice_bias) {
        const float* bias = fused::vector_of(*choice_bias, "choice_bias", num_experts);
        routing_.choice_bias.assign(bias, bias + num_experts);
    }
    require_routing(routing_);
}

nb::tuple Router::choose(const Array& logits) const {
    require_matrix(logits, "logits", nb::dtype<float>(), "float32 [M, E]");
    require_columns(logits, "logits", routing_.num_experts);
    const auto count = static_cast<int64_t>(logits.shape(0));
    const NewArray<int64_t> experts(count, routing_.num_chosen);
    const NewArray<float> weights(count, routing_.num_chosen);
    const auto* from = static_cast<const float*>(logits.data());
    for (int64_t m = 0; m < count; m++)
        moe::choose(routing_, from + m * routing_.num_experts, experts.data + m * routing_.num_chosen,
                    weights.data + m * routing_.num_chosen);
    return nb::make_tuple(experts.array, weights.array);
}

void require_router(const Router& router, const Experts& experts) {
    if (router.routing().num_experts != experts.num_routed() || router.group().row_size() != experts.hidden_size())
        throw std::invalid_argument("router: got one of " + std::to_string(router.routing().num_experts) +
                                    " experts that reads " + std::to_string(router.group().row_size()) + ", expected " +
                                    std::to_string(experts.num_routed()) + " that read " +
                                    std::to_string(experts.hidden_size()));
}

// ---- PackedExperts

PackedExperts::PackedExperts(const Linears& gate, const Linears& up, const Linears& down, int64_t num_shared)
    : experts_(join(gate, up, down), num_shared) {}

nb::object PackedExperts::forward(const Array& x, const Array& chosen, const Array& weights,
                                  const std::optional<std::string>& isa, const std::optional<std::string>& path,
                                  std::optional<nb::object> out, int64_t begin, std::optional<int64_t> end) {
    const Choices all = choices_of(x, chosen, weights);
    const auto num_experts = static_cast<int64_t>(experts_.experts().size());
    const Some some{begin, end.value_or(num_experts)};
    if (begin < 0 || some.end > num_experts || begin > some.end || (begin > 0 && !out))
        throw std::invalid_argument("begin, end: got " + std::to_string(begin) + " and " + std::to_string(some.end) +
                                    ", expected 0 to " + std::to_string(num_experts) +
                                    ", and an out to add to unless begin is 0");
    const int64_t hidden_size = experts_.hidden_size();
    if (!out) out = empty_float32(all.num_tokens, hidden_size);
    float* y = require_output(*out, "out", all.num_tokens, hidden_size);
    for (const auto& [read, name] : {std::pair{&x, "x"}, {&chosen, "chosen"}, {&weights, "weights"}})
        require_apart(y, all.num_tokens, hidden_size, *read, name);
    const auto* x_data = static_cast<const float*>(x.data());
    const auto forced = isa ? std::optional<std::string_view>(*isa) : std::nullopt;
    const linear::Path forced_path = path ? linear::parse_path(*path) : linear::Path::automatic;
    for (int64_t token = 0; token < all.num_tokens; token += call_tokens) {
        const int64_t first = token * all.num_chosen;
        const Choices piece{all.experts + first, all.weights + first, std::min(call_tokens, all.num_tokens - token),
                            all.num_chosen};
        Call call(experts_, x_data + token * hidden_size, piece, y + token * hidden_size, forced, forced_path, some);
        nb::gil_scoped_release release;
        ran_ = call.run();
    }
    return *out;
}

nb::object PackedExperts::feed_forward(const Router& router, const Array& x, const std::optional<Array>& norm_weight,
                                       float eps, const std::optional<Array>& residual) {
    require_router(router, experts_);
    const fused::Source source(x, experts_.hidden_size(), norm_weight, eps);
    const int64_t count = source.x.count;
    const fused::Rows added = fused::residual_of(residual, count, experts_.hidden_size());
    const NetChoices choices{router.group().choose(count), fused::choose_steps(std::nullopt).kernels, with_environment};
    float* out = nullptr;
    nb::object result = empty_float32(count, experts_.hidden_size(), &out);
    {
        nb::gil_scoped_release release;
        ran_ = moe::feed_forward({&router.group(), &router.routing(), &experts_}, source.x, source.norm, added, out,
                                 choices);
    }
    return result;
}

std::optional<std::string> PackedExperts::obstacle(const Linears& gate, const Linears& up, const Linears& down,
                                                   int64_t num_shared) {
    return Experts::obstacle(join(gate, up, down), num_shared);
}

std::optional<nb::tuple> PackedExperts::last_isa() const {
    const auto ran = ran_.load();
    if (!ran) return std::nullopt;
    return nb::make_tuple(name_of(ran->gate), name_of(ran->up), name_of(ran->down));
}

Choices PackedExperts::choices_of(const Array& x, const Array& chosen, const Array& weights) const {
    const int64_t hidden_size = experts_.hidden_size();
    require_matrix(x, "x", nb::dtype<float>(), "float32 [M, " + std::to_string(hidden_size) + "]");
    require_columns(x, "x", hidden_size);
    require_matrix(chosen, "chosen", nb::dtype<int64_t>(), "int64 [M, k]");
    require_matrix(weights, "weights", nb::dtype<float>(), "float32 [M, k]");
    const auto num_tokens = static_cast<int64_t>(x.shape(0)), num_chosen = static_cast<int64_t>(chosen.shape(1));
    require_rows(chosen, "chosen", num_tokens);
    require_rows(weights, "weights", num_tokens);
    require_columns(weights, "weights", num_chosen);
    const auto* experts = static_cast<const int64_t*>(chosen.data());
    for (int64_t i = 0; i < num_tokens * num_chosen; i++)
        if (experts[i] < 0 || experts[i] >= experts_.num_routed())
            throw std::invalid_argument("chosen: got expert " + std::to_string(experts[i]) + ", expected 0 to " +
                                        std::to_string(experts_.num_routed() - 1));
    return {experts, static_cast<const float*>(weights.data()), num_tokens, num_chosen};
}

void bind(nb::module_& m) {
    using namespace nb::literals;

    nb::class_<Router>(m, "Router",
                       "Chooses each token's experts, as cpu_kernels.moe.route_ref defines it.\n\n"
                       "linear            LinearGroup of one [E, K]: the logits\n"
                       "num_chosen        experts a token\n"
                       "scoring           softmax over all, or sigmoid of each\n"
                       "num_groups        of equal size; a token chooses within its best groups_per_token\n"
                       "best_of_group     number of a group's highest scores that sum to its own\n"
                       "choice_bias       [E] float32, added to scores to choose alone; copied; or None\n"
                       "is_normed         whether what the chosen count is made to sum to 1, before the factor\n"
                       "raises            ValueError (shape, numbers), TypeError (dtype)")
        .def(nb::init<const fused::LinearGroup&, int64_t, const std::string&, int64_t, int64_t, int64_t,
                      const std::optional<Array>&, bool, float>(),
             nb::keep_alive<1, 2>(), "linear"_a, "num_chosen"_a, "scoring"_a = "softmax", "num_groups"_a = 1,
             "groups_per_token"_a = 1, "best_of_group"_a = 1, "choice_bias"_a = nb::none(), "is_normed"_a = false,
             "factor"_a = 1.0f)
        .def("choose", &Router::choose, "logits"_a,
             "logits [M, E] float32, contiguous -> experts [M, k] int64, the best first; weights [M, k] float32.");
    nb::class_<PackedExperts>(
        m, "PackedExperts",
        "The experts of a layer, each down @ (silu(gate @ x) * (up @ x)), run as two fused tasks.\n\n"
        "gate, up    PackedLinear [I, K] of each expert; they are shared, not copied\n"
        "down        PackedLinear [K, I] of each expert; I may differ among experts\n"
        "num_shared  number of last experts that every token passes, with weight 1\n"
        "raises      ValueError: shapes, or what `obstacle` says")
        .def(nb::init<const Linears&, const Linears&, const Linears&, int64_t>(), "gate"_a, "up"_a, "down"_a,
             "num_shared"_a = 0)
        .def("forward", &PackedExperts::forward, "x"_a, "chosen"_a, "weights"_a, "isa"_a = nb::none(),
             "path"_a = nb::none(), "out"_a = nb::none(), "begin"_a = 0, "end"_a = nb::none(),
             "y[m] = sum over the chosen experts of weights[m, j] * expert(x[m]), in ascending order of experts.\n\n"
             "x        [M, K] float32, contiguous\n"
             "chosen   [M, k] int64 in [0, num_experts), contiguous\n"
             "weights  [M, k] float32, contiguous\n"
             "isa      implementation of the products by name; None: the best, at most QBENCH_ISA\n"
             "path     as PackedLinear.matmul has it; None: QBENCH_LINEAR_PATH, or the crossover for each expert's\n"
             "         tokens\n"
             "out      [M, K] float32, contiguous, written and returned; x itself or apart from it; None: a new\n"
             "         array\n"
             "begin, end  experts that run, shared ones counted last; None: all from begin. If begin is not 0 they add "
             "to\n"
             "         out, so that calls over 0 to n and n to the end give the bits of one call\n"
             "raises   ValueError (shape, strides, path, begin, end, an expert that is not there), TypeError (dtype),\n"
             "         RuntimeError (isa not on this machine)")
        .def("feed_forward", &PackedExperts::feed_forward, "router"_a, "x"_a, "norm_weight"_a = nb::none(),
             "eps"_a = 0.0f, "residual"_a = nb::none(),
             "forward of norm(x) with what the router chooses for it (+ residual).\n\n"
             "x            [M, K] float32, each row contiguous\n"
             "norm_weight  [K] float32: x is normed with it and eps where it is read; None: it is not\n"
             "residual     [M, K] float32\n"
             "returns      [M, K] float32\n"
             "raises       ValueError (shape, strides, a router of others), TypeError (dtype)")
        .def_static("obstacle", &PackedExperts::obstacle, "gate"_a, "up"_a, "down"_a, "num_shared"_a = 0,
                    "Why these cannot run as one, or None.")
        .def_prop_ro(
            "num_experts", [](const PackedExperts& self) { return self.experts().num_routed(); },
            "Those that are chosen among.")
        .def_prop_ro(
            "num_shared", [](const PackedExperts& self) { return self.experts().num_shared(); },
            "Those that every token passes through.")
        .def_prop_ro(
            "nbytes", [](const PackedExperts& self) { return self.experts().nbytes(); }, "Bytes of the packed layout.")
        .def_prop_ro("last_isa", &PackedExperts::last_isa,
                     "What the kernels of the last call said they are: (gate, up, down).");
}

}  // namespace qk::moe
