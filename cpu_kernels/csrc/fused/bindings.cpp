#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "fused/arguments.h"
#include "thread_pool.h"

namespace qk::fused {
namespace {

using namespace nb::literals;

// Below this a second thread takes longer to begin than the first one to finish: about 10 us of work.
constexpr int64_t parallel_size = 1 << 15;

template <class Step>
Isa for_rows(int64_t num_rows, int64_t row_size, const Step& step) {
    std::atomic<Isa> ran{};
    const auto run = [&](int64_t row) { ran.store(step(row), std::memory_order_relaxed); };
    if (num_rows * row_size >= parallel_size)
        thread_pool()->run(num_rows, run);
    else
        for (int64_t row = 0; row < num_rows; row++) run(row);
    return ran.load(std::memory_order_relaxed);
}

struct Shape { int64_t num_rows, row_size; };

// (`out` or a new array, the instruction set that ran): step(kernels, row, to) writes each row.
//
// reads  inputs by name; `out` may overlap them only row by row
template <class Step>
nb::tuple run_rows(const Shape& shape, const std::optional<std::string>& isa, std::optional<nb::object>& out,
                   std::initializer_list<std::pair<const Array*, const char*>> reads, const Step& step) {
    const auto& impl = choose_steps(isa);
    const int64_t num_rows = shape.num_rows, row_size = shape.row_size;  // Clang 14 captures no structured binding
    if (!out) out = empty_float32(num_rows, row_size);
    float* to = require_output(*out, "out", num_rows, row_size);
    for (const auto& [read, name] : reads) require_apart(to, num_rows, row_size, *read, name);
    Isa ran = impl.isa;
    {
        nb::gil_scoped_release release;
        if (num_rows * row_size > 0)
            ran =
                for_rows(num_rows, row_size, [&](int64_t row) { return step(impl.kernels, row, to + row * row_size); });
    }
    return nb::make_tuple(*out, name_of(ran));
}

nb::tuple rms_norm(const Array& x, const Array& weight, float eps, const std::optional<std::string>& isa,
                   std::optional<nb::object> out) {
    const Rows from = rows_of(x, "x");
    const int64_t num_rows = from.count, row_size = from.size;
    const float* scale = vector_of(weight, "weight", row_size);
    return run_rows({num_rows, row_size}, isa, out, {{&x, "x"}, {&weight, "weight"}},
                    [&](const RowSteps& kernels, int64_t row, float* to) {
                        return kernels.rms_norm(from[row], scale, eps, row_size, to);
                    });
}

nb::tuple silu_mul(const Array& gate, const Array& up, const std::optional<std::string>& isa,
                   std::optional<nb::object> out) {
    const Rows gates = rows_of(gate, "gate"), ups = rows_of(up, "up");
    const int64_t num_rows = gates.count, row_size = gates.size;
    if (ups.count != num_rows || ups.size != row_size)
        throw std::invalid_argument("up: got " + describe(up) + ", expected the shape of gate, " + describe(gate));
    return run_rows({num_rows, row_size}, isa, out, {{&gate, "gate"}, {&up, "up"}},
                    [&](const RowSteps& kernels, int64_t row, float* to) {
                        return kernels.silu_mul(gates[row], ups[row], row_size, to);
                    });
}

}  // namespace

void bind(nb::module_& m) {
    bind_groups(m);
    bind_attention(m);
    bind_layers(m);
    m.def("rms_norm_rows", rms_norm, "x"_a, "weight"_a, "eps"_a, "isa"_a = nb::none(), "out"_a = nb::none(),
          "(rms_norm of each row [M, K], the instruction set that ran); cpu_kernels.fused says what it is.");
    m.def("silu_mul_rows", silu_mul, "gate"_a, "up"_a, "isa"_a = nb::none(), "out"_a = nb::none(),
          "(silu_mul of each row [M, K], the instruction set that ran); cpu_kernels.fused says what it is.");
}

}  // namespace qk::fused
