#include "moe/bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>

#include "checks.h"
#include "linear/crossover.h"
#include "linear/packed_linear.h"
#include "moe/call.h"
#include "moe/experts.h"

namespace qk::moe {
namespace {

using linear::PackedLinear;
using Linears = std::vector<const PackedLinear*>;

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

class PackedExperts {
public:
    PackedExperts(const Linears& gate, const Linears& up, const Linears& down, int64_t num_shared)
        : experts_(join(gate, up, down), num_shared) {}

    nb::object forward(const Array& x, const Array& chosen, const Array& weights, const std::optional<std::string>& isa,
                       const std::optional<std::string>& path, std::optional<nb::object> out) {
        const Choices all = choices_of(x, chosen, weights);
        const int64_t hidden_size = experts_.hidden_size();
        if (!out) out = empty_float32(all.num_tokens, hidden_size);
        float* y = require_output(*out, "out", all.num_tokens, hidden_size);
        const auto* x_data = static_cast<const float*>(x.data());
        const auto forced = isa ? std::optional<std::string_view>(*isa) : std::nullopt;
        const linear::Path forced_path = path ? linear::parse_path(*path, "path") : linear::Path::automatic;
        for (int64_t token = 0; token < all.num_tokens; token += call_tokens) {
            const int64_t first = token * all.num_chosen;
            const Choices some{all.experts + first, all.weights + first, std::min(call_tokens, all.num_tokens - token),
                               all.num_chosen};
            Call call(experts_, x_data + token * hidden_size, some, y + token * hidden_size, forced, forced_path);
            nb::gil_scoped_release release;
            ran_ = call.run();
        }
        return *out;
    }

    int64_t num_experts() const { return experts_.num_routed(); }
    int64_t num_shared() const { return experts_.num_shared(); }
    size_t nbytes() const { return experts_.nbytes(); }
    std::optional<nb::tuple> last_isa() const {
        const auto ran = ran_.load();
        if (!ran) return std::nullopt;
        return nb::make_tuple(name_of(ran->gate), name_of(ran->up), name_of(ran->down));
    }

private:
    // Tokens at a time. 1024 of them, at 8 experts each, 2048 and 768 wide, are 8192 * (5 + 3 KB) and 1024 * 5 KB, that
    // is 72 MB, between the products. More tokens an expert, 64 of 128 experts, would save little.
    static constexpr int64_t call_tokens = 1024;

    Choices choices_of(const Array& x, const Array& chosen, const Array& weights) const {
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

    static void require_rows(const Array& array, const char* name, int64_t rows) {
        if (static_cast<int64_t>(array.shape(0)) != rows)
            throw std::invalid_argument(std::string(name) + ": got " + describe(array) + ", expected " +
                                        std::to_string(rows) + " rows, one for each token of x");
    }

    Experts experts_;
    std::atomic<std::optional<Ran>> ran_{};
};

}  // namespace

void bind(nb::module_& m) {
    using namespace nb::literals;

    nb::class_<PackedExperts>(
        m, "PackedExperts",
        "The experts of a layer, each down @ (silu(gate @ x) * (up @ x)), run as two fused tasks.\n\n"
        "gate, up    PackedLinear [I, K] of each expert; they are shared, not copied\n"
        "down        PackedLinear [K, I] of each expert; I may differ among experts\n"
        "num_shared  the last so many pass every token through, with weight 1\n"
        "raises      ValueError: shapes, or what `obstacle` says")
        .def(nb::init<const Linears&, const Linears&, const Linears&, int64_t>(), "gate"_a, "up"_a, "down"_a,
             "num_shared"_a = 0)
        .def("forward", &PackedExperts::forward, "x"_a, "chosen"_a, "weights"_a, "isa"_a = nb::none(),
             "path"_a = nb::none(), "out"_a = nb::none(),
             "y[m] = sum over the chosen experts of weights[m, j] * expert(x[m]), in ascending order of experts.\n\n"
             "x        [M, K] float32, contiguous\n"
             "chosen   [M, k] int64 in [0, num_experts), contiguous\n"
             "weights  [M, k] float32, contiguous\n"
             "isa      implementation of the products by name; None: the best, at most QBENCH_ISA\n"
             "path     \"direct\" or \"tile\"; None: QBENCH_LINEAR_PATH, or the crossover for each expert's tokens\n"
             "out      [M, K] float32, contiguous, written and returned; None: a new array\n"
             "raises   ValueError (shape, strides, path, an expert that is not there), TypeError (dtype),\n"
             "         RuntimeError (isa not on this machine)")
        .def_static("obstacle", [](const Linears& gate, const Linears& up, const Linears& down, int64_t num_shared) {
            return Experts::obstacle(join(gate, up, down), num_shared);
        }, "gate"_a, "up"_a, "down"_a, "num_shared"_a = 0, "Why these cannot run as one, or None.")
        .def_prop_ro("num_experts", &PackedExperts::num_experts, "Those that are chosen among.")
        .def_prop_ro("num_shared", &PackedExperts::num_shared, "Those that every token passes through.")
        .def_prop_ro("nbytes", &PackedExperts::nbytes, "Bytes of the packed layout.")
        .def_prop_ro("last_isa", &PackedExperts::last_isa,
                     "What the kernels of the last call said they are: (gate, up, down).");
}

}  // namespace qk::moe
