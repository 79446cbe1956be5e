#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "checks.h"
#include "decode/bindings.h"
#include "decode/decode.h"
#include "encode/bindings.h"
#include "encode/encode.h"
#include "fused/bindings.h"
#include "gptq/bindings.h"
#include "gptq/gptq.h"
#include "isa.h"
#include "linear_q8_0/linear_q8_0.h"
#include "roofline/roofline.h"
#include "thread_pool.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

nb::tuple names_in(qk::Features features) {
    nb::list names;
    for (int i = 0; i < qk::num_isas; i++)
        if (features >> i & 1) names.append(qk::isa_names[i]);
    return nb::tuple(names);
}

// ---- op table

std::vector<qk::OpRow> op_rows() {
    std::vector<qk::OpRow> rows;
    qk::append_rows(rows, "linear_q8_0", qk::linear_q8_0::table());
    for (const auto& encoder : qk::encode::encoders()) qk::append_rows(rows, encoder.op, encoder.table);
    for (const auto& decoder : qk::decode::decoders()) qk::append_rows(rows, decoder.op, decoder.table);
    qk::fused::append_rows(rows);
    qk::append_rows(rows, "gptq", qk::gptq::table());
    qk::append_rows(rows, "read_bandwidth", qk::roofline::read_table());
    qk::append_rows(rows, "int8_peak", qk::roofline::int8_table());
    qk::append_rows(rows, "fp32_peak", qk::roofline::fp32_table());
    return rows;
}

nb::list op_table() {
    nb::list table;
    for (const auto& row : op_rows()) {
        nb::dict entry;
        entry["op"] = row.op;
        entry["impl"] = qk::name_of(row.isa);
        entry["required"] = names_in(row.required);
        entry["available"] = row.available;
        entry["chosen"] = row.chosen;
        table.append(entry);
    }
    return table;
}

std::string chosen_isa(const std::string& op) {
    std::string known;
    for (const auto& row : op_rows()) {
        if (row.op == op && row.chosen) return qk::name_of(row.isa);
        if (row.chosen) known += (known.empty() ? "" : ", ") + row.op;
    }
    throw std::invalid_argument("op: got " + op + ", expected one of " + known);
}

// ---- linear_q8_0

class PackedQ8_0 {
public:
    explicit PackedQ8_0(const qk::Array& blocks) {
        using namespace qk::linear_q8_0;
        qk::require_matrix(blocks, "blocks", nb::dtype<uint8_t>(), "uint8 [N, K // 32 * 34]");
        if (blocks.shape(1) == 0 || blocks.shape(1) % block_bytes)
            throw std::invalid_argument("blocks: got rows of " + std::to_string(blocks.shape(1)) +
                                        " bytes, expected a multiple of 34 (Q8_0: f16 scale and 32 int8)");
        const auto num_rows = static_cast<int64_t>(blocks.shape(0));
        const auto num_blocks = static_cast<int64_t>(blocks.shape(1)) / block_bytes;
        const auto* data = static_cast<const uint8_t*>(blocks.data());
        nb::gil_scoped_release release;
        weight_ = pack(data, num_rows, num_blocks);
    }

    nb::object matmul(const qk::Array& x, const std::optional<std::string>& isa, std::optional<nb::object> out) {
        using namespace qk::linear_q8_0;
        const int64_t row_size = weight_.num_blocks * block_size;
        qk::require_matrix(x, "x", nb::dtype<float>(), "float32 [M, " + std::to_string(row_size) + "]");
        qk::require_columns(x, "x", row_size);
        const auto num_tokens = static_cast<int64_t>(x.shape(0));
        if (!out) out = qk::empty_float32(num_tokens, weight_.num_rows);
        float* y = qk::require_output(*out, "out", num_tokens, weight_.num_rows);
        const auto forced = isa ? std::optional<std::string_view>(*isa) : std::nullopt;
        const auto& impl = qk::choose("linear_q8_0", table(), forced);
        const auto* x_data = static_cast<const float*>(x.data());
        {
            nb::gil_scoped_release release;
            last_isa_ = qk::linear_q8_0::linear(weight_, x_data, num_tokens, y, impl);
        }
        return *out;
    }

    nb::object rows(const qk::Array& index) const {
        qk::require_vector(index, "index", nb::dtype<int64_t>(), "int64 [n]");
        const auto num_indices = static_cast<int64_t>(index.shape(0));
        const auto* data = static_cast<const int64_t*>(index.data());
        for (int64_t i = 0; i < num_indices; i++)
            if (data[i] < 0 || data[i] >= weight_.num_rows)
                throw std::invalid_argument("index: got " + std::to_string(data[i]) + ", expected 0 to " +
                                            std::to_string(weight_.num_rows - 1));
        const int64_t row_size = weight_.num_blocks * qk::linear_q8_0::block_size;
        float* values = nullptr;
        nb::object out = qk::empty_float32(num_indices, row_size, &values);
        {
            nb::gil_scoped_release release;
            unpack_rows(weight_, data, num_indices, values);
        }
        return out;
    }

    nb::tuple shape() const {
        return nb::make_tuple(weight_.num_rows, weight_.num_blocks * qk::linear_q8_0::block_size);
    }
    size_t nbytes() const { return weight_.buffer.size(); }
    std::optional<std::string> last_isa() const {
        const auto isa = last_isa_.load();
        return isa ? std::optional<std::string>(qk::name_of(*isa)) : std::nullopt;
    }

private:
    qk::linear_q8_0::PackedWeight weight_;
    std::atomic<std::optional<qk::Isa>> last_isa_{};
};

}  // namespace

NB_MODULE(_ext, m) {
    m.def("features", [] { return names_in(qk::detect()); },
          "Names of the instruction sets this machine and process may use, weakest first.");
    m.def("emulated_features", [] { return names_in(qk::emulated()); },
          "Those of features() that a test's emulator executes instead of the processor.");
    m.def("op_table", op_table,
          "One row an implementation, best first within its op: op, impl, required, available, chosen.");
    m.def("chosen_isa", chosen_isa, "op"_a, "The instruction set that `op` runs under now (QBENCH_ISA obeyed).");
    m.def("set_num_threads", qk::set_num_threads, "num_threads"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Threads of every kernel from now on; results do not depend on it. raises ValueError below 1.");
    m.def("get_num_threads", [] { return qk::thread_pool()->num_threads(); }, "Threads of every kernel.");

    nb::class_<PackedQ8_0>(m, "PackedQ8_0",
                           "A GGUF Q8_0 weight in the layout of its kernels.\n\n"
                           "blocks   [N, K // 32 * 34] uint8, contiguous; copied, not kept")
        .def(nb::init<const qk::Array&>(), "blocks"_a)
        .def("matmul", &PackedQ8_0::matmul, "x"_a, "isa"_a = nb::none(), "out"_a = nb::none(),
             "y = x @ weight.T as linear_q8_0_ref defines it.\n\n"
             "x        [M, K] float32, contiguous\n"
             "isa      implementation by name; None: the best, at most QBENCH_ISA\n"
             "out      [M, N] float32, contiguous, written and returned; None: a new array\n"
             "raises   ValueError (shape, strides), TypeError (dtype), RuntimeError (isa not on this machine)")
        .def("rows", &PackedQ8_0::rows, "index"_a,
             "Rows of the weight in float32, as its GGUF blocks say: scale * code.\n\n"
             "index    [n] int64 in [0, N), contiguous\n"
             "returns  [n, K] float32\n"
             "raises   ValueError (shape, strides, a row that is not there), TypeError (dtype)")
        .def_prop_ro("shape", &PackedQ8_0::shape, "(N, K)")
        .def_prop_ro("nbytes", &PackedQ8_0::nbytes, "Bytes of the packed layout; N is rounded up to 16.")
        .def_prop_ro("last_isa", &PackedQ8_0::last_isa, "What the kernel of the last matmul said it is.");

    qk::encode::bind(m);
    qk::decode::bind(m);
    qk::fused::bind(m);
    qk::gptq::bind(m);

    m.def("measure_read_bandwidth", qk::roofline::read_bandwidth, "threads"_a,
          nb::call_guard<nb::gil_scoped_release>(), "Bytes/s read from memory by this many threads, best of 0.3 s.");
    m.def("measure_int8_peak", qk::roofline::int8_peak, "threads"_a, nb::call_guard<nb::gil_scoped_release>(),
          "int8 multiply-adds from registers in operations/s (two each), best of 0.3 s.");
    m.def("measure_fp32_peak", qk::roofline::fp32_peak, "threads"_a, nb::call_guard<nb::gil_scoped_release>(),
          "fp32 multiply-adds from registers in operations/s (two each), best of 0.3 s.");
}
