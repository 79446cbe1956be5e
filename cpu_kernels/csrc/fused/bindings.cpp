#include "fused/bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <optional>
#include <string>

#include "checks.h"
#include "fused/row_steps.h"
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

const Impl<RowSteps>& choose_steps(const std::optional<std::string>& isa) {
    return choose("fused_rows", row_steps_table(), isa ? std::optional<std::string_view>(*isa) : std::nullopt);
}

// The memory of a matrix.
const float* matrix(const Array& x, const char* name) {
    require_matrix(x, name, nb::dtype<float>(), "float32 [M, K]");
    return static_cast<const float*>(x.data());
}

nb::tuple rms_norm(const Array& x, const Array& weight, float eps, const std::optional<std::string>& isa,
                   std::optional<nb::object> out) {
    const float* from = matrix(x, "x");
    const auto num_rows = static_cast<int64_t>(x.shape(0)), row_size = static_cast<int64_t>(x.shape(1));
    require_vector(weight, "weight", nb::dtype<float>(), "float32 [" + std::to_string(row_size) + "]");
    if (static_cast<int64_t>(weight.shape(0)) != row_size)
        throw std::invalid_argument("weight: got " + describe(weight) + ", expected float32 [" +
                                    std::to_string(row_size) + "]");
    const auto* scale = static_cast<const float*>(weight.data());
    const auto& impl = choose_steps(isa);
    if (!out) out = empty_float32(num_rows, row_size);
    float* to = require_output(*out, "out", num_rows, row_size);
    Isa ran = impl.isa;
    {
        nb::gil_scoped_release release;
        if (num_rows * row_size > 0)
            ran = for_rows(num_rows, row_size, [&](int64_t row) {
                return impl.kernels.rms_norm(from + row * row_size, scale, eps, row_size, to + row * row_size);
            });
    }
    return nb::make_tuple(*out, name_of(ran));
}

nb::tuple silu_mul(const Array& gate, const Array& up, const std::optional<std::string>& isa,
                   std::optional<nb::object> out) {
    const float* gates = matrix(gate, "gate");
    const float* ups = matrix(up, "up");
    const auto num_rows = static_cast<int64_t>(gate.shape(0)), row_size = static_cast<int64_t>(gate.shape(1));
    if (up.shape(0) != gate.shape(0) || up.shape(1) != gate.shape(1))
        throw std::invalid_argument("up: got " + describe(up) + ", expected the shape of gate, " + describe(gate));
    const auto& impl = choose_steps(isa);
    if (!out) out = empty_float32(num_rows, row_size);
    float* to = require_output(*out, "out", num_rows, row_size);
    Isa ran = impl.isa;
    {
        nb::gil_scoped_release release;
        if (num_rows * row_size > 0)
            ran = for_rows(num_rows, row_size, [&](int64_t row) {
                const int64_t first = row * row_size;
                return impl.kernels.silu_mul(gates + first, ups + first, row_size, to + first);
            });
    }
    return nb::make_tuple(*out, name_of(ran));
}

}  // namespace

void append_rows(std::vector<OpRow>& rows) { qk::append_rows(rows, "fused_rows", row_steps_table()); }

void bind(nb::module_& m) {
    m.def("rms_norm_rows", rms_norm, "x"_a, "weight"_a, "eps"_a, "isa"_a = nb::none(), "out"_a = nb::none(),
          "(rms_norm of each row [M, K], the instruction set that ran); cpu_kernels.fused says what it is.");
    m.def("silu_mul_rows", silu_mul, "gate"_a, "up"_a, "isa"_a = nb::none(), "out"_a = nb::none(),
          "(silu_mul of each row [M, K], the instruction set that ran); cpu_kernels.fused says what it is.");
}

}  // namespace qk::fused
