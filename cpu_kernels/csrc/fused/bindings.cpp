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

// A matrix whose rows may stand apart: some columns of a wider one.
struct Rows {
    const float* data;
    int64_t count, size, stride;

    const float* operator[](int64_t row) const { return data + row * stride; }
};

Rows rows_of(const Array& x, const char* name) {
    const std::string got = std::string(name) + ": got " + describe(x);
    require_type(x, 2, got, nb::dtype<float>(), "float32 [M, K]");
    const auto count = static_cast<int64_t>(x.shape(0)), size = static_cast<int64_t>(x.shape(1));
    if (count > 0 && size > 1 && x.stride(1) != 1)
        throw std::invalid_argument(got + " with stride " + std::to_string(x.stride(1)) +
                                    " within a row, expected contiguous rows");
    return {static_cast<const float*>(x.data()), count, size, x.stride(0)};
}

nb::tuple rms_norm(const Array& x, const Array& weight, float eps, const std::optional<std::string>& isa,
                   std::optional<nb::object> out) {
    const Rows from = rows_of(x, "x");
    const int64_t num_rows = from.count, row_size = from.size;
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
                return impl.kernels.rms_norm(from[row], scale, eps, row_size, to + row * row_size);
            });
    }
    return nb::make_tuple(*out, name_of(ran));
}

nb::tuple silu_mul(const Array& gate, const Array& up, const std::optional<std::string>& isa,
                   std::optional<nb::object> out) {
    const Rows gates = rows_of(gate, "gate"), ups = rows_of(up, "up");
    const int64_t num_rows = gates.count, row_size = gates.size;
    if (ups.count != num_rows || ups.size != row_size)
        throw std::invalid_argument("up: got " + describe(up) + ", expected the shape of gate, " + describe(gate));
    const auto& impl = choose_steps(isa);
    if (!out) out = empty_float32(num_rows, row_size);
    float* to = require_output(*out, "out", num_rows, row_size);
    Isa ran = impl.isa;
    {
        nb::gil_scoped_release release;
        if (num_rows * row_size > 0)
            ran = for_rows(num_rows, row_size, [&](int64_t row) {
                return impl.kernels.silu_mul(gates[row], ups[row], row_size, to + row * row_size);
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
