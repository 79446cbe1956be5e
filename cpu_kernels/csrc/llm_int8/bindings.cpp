#include "bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>

#include "checks.h"
#include "linear/crossover.h"
#include "linear/makers.h"
#include "llm_int8/llm_int8.h"

namespace qk::llm_int8 {
namespace {

std::vector<int32_t> features_of(const Array& features, int64_t row_size) {
    require_vector(features, "outlier_features", nb::dtype<int32_t>(), "int32 [F]");
    const auto* first = static_cast<const int32_t*>(features.data());
    std::vector<int32_t> all(first, first + features.shape(0));
    for (size_t i = 0; i < all.size(); i++)
        if (all[i] < 0 || all[i] >= row_size || (i && all[i] <= all[i - 1]))
            throw std::invalid_argument("outlier_features: got " + std::to_string(all[i]) + " at " + std::to_string(i) +
                                        ", expected ascending numbers from 0 to " + std::to_string(row_size - 1));
    return all;
}

Weight make(const Array& weight, const Array& absmax, const Array& outlier_weight, const Array& features) {
    require_matrix(weight, "weight", nb::dtype<int8_t>(), "int8 [N, K]");
    const auto num_rows = static_cast<int64_t>(weight.shape(0)), row_size = static_cast<int64_t>(weight.shape(1));
    linear_int8::require_codes(weight, num_rows, row_size);
    require_vector(absmax, "SCB", nb::dtype<float>(), "float32 [N]");
    if (static_cast<int64_t>(absmax.shape(0)) != num_rows)
        throw std::invalid_argument("SCB: got " + describe(absmax) + ", expected " + std::to_string(num_rows));
    std::vector<int32_t> known = features_of(features, row_size);
    const auto half = nb::dlpack::dtype{static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    require_shape(outlier_weight, "outlier_weight", half, "float16", num_rows, static_cast<int64_t>(known.size()));
    const auto* codes = static_cast<const int8_t*>(weight.data());
    const auto* scales = static_cast<const float*>(absmax.data());
    const auto* halves = static_cast<const uint16_t*>(outlier_weight.data());
    nb::gil_scoped_release release;
    return Weight(codes, scales, num_rows, row_size, halves, std::move(known));
}

class PackedLlmInt8 {
public:
    PackedLlmInt8(const Array& weight, const Array& absmax, const Array& outlier_weight, const Array& features)
        : weight_(make(weight, absmax, outlier_weight, features)) {}

    nb::object matmul(const Array& x, const std::optional<std::string>& isa, std::optional<nb::object> out) {
        const int64_t num_rows = weight_.num_rows(), row_size = weight_.row_size();
        require_matrix(x, "x", nb::dtype<float>(), "float32 [M, " + std::to_string(row_size) + "]");
        require_columns(x, "x", row_size);
        const auto num_tokens = static_cast<int64_t>(x.shape(0));
        const auto& impl = linear::choose_tiles("linear_llm_int8", table(), num_tokens, linear::least_int8_tile_tokens,
                                                isa ? std::optional<std::string_view>(*isa) : std::nullopt);
        if (!out) out = empty_float32(num_tokens, num_rows);
        float* y = require_output(*out, "out", num_tokens, num_rows);
        require_apart(y, num_tokens, num_rows, x, "x");
        const auto* data = static_cast<const float*>(x.data());
        {
            nb::gil_scoped_release release;
            last_isa_ = weight_.multiply(data, num_tokens, y, impl);
        }
        return *out;
    }

    nb::object rows(const Array& index) const {
        require_vector(index, "index", nb::dtype<int64_t>(), "int64 [n]");
        const auto num_indices = static_cast<int64_t>(index.shape(0));
        const auto* data = static_cast<const int64_t*>(index.data());
        for (int64_t i = 0; i < num_indices; i++)
            if (data[i] < 0 || data[i] >= weight_.num_rows())
                throw std::invalid_argument("index: got " + std::to_string(data[i]) + ", expected 0 to " +
                                            std::to_string(weight_.num_rows() - 1));
        float* values = nullptr;
        nb::object out = empty_float32(num_indices, weight_.row_size(), &values);
        {
            nb::gil_scoped_release release;
            weight_.rows(data, num_indices, values);
        }
        return out;
    }

    nb::tuple shape() const { return nb::make_tuple(weight_.num_rows(), weight_.row_size()); }
    size_t nbytes() const { return weight_.nbytes(); }
    std::optional<std::string> last_isa() const {
        const auto isa = last_isa_.load();
        return isa ? std::optional<std::string>(name_of(*isa)) : std::nullopt;
    }

private:
    Weight weight_;
    std::atomic<std::optional<Isa>> last_isa_{};
};

}  // namespace

void bind(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<PackedLlmInt8>(m, "PackedLlmInt8",
                              "A weight of LLM.int8() in the layout of its kernels.\n\n"
                              "weight            [N, K] int8\n"
                              "SCB               [N] float32, absmax of each row\n"
                              "outlier_weight    [N, F] float16\n"
                              "outlier_features  [F] int32 in [0, K), ascending\n"
                              "All are contiguous; they are copied, not kept.\n"
                              "raises   ValueError (shape, strides, features), TypeError (dtype)")
        .def(nb::init<const Array&, const Array&, const Array&, const Array&>(), "weight"_a, "SCB"_a,
             "outlier_weight"_a, "outlier_features"_a)
        .def("matmul", &PackedLlmInt8::matmul, "x"_a, "isa"_a = nb::none(), "out"_a = nb::none(),
             "y = x @ weight.T as linear_llm_int8_ref defines it.\n\n"
             "x        [M, K] float32, contiguous: all tokens of the call, as outliers are found over all\n"
             "isa      implementation by name; None: the best, at most QBENCH_ISA\n"
             "out      [M, N] float32, contiguous, written and returned; x itself or apart from it; None: a new\n"
             "         array\n"
             "raises   ValueError (shape, strides), TypeError (dtype), RuntimeError (isa not on this machine)")
        .def("rows", &PackedLlmInt8::rows, "index"_a,
             "Rows of the weight in float32: code * SCB / 127, and the outlier features' own.\n\n"
             "index    [n] int64 in [0, N), contiguous\n"
             "returns  [n, K] float32\n"
             "raises   ValueError (shape, strides, a row that is not there), TypeError (dtype)")
        .def_prop_ro("shape", &PackedLlmInt8::shape, "(N, K)")
        .def_prop_ro("nbytes", &PackedLlmInt8::nbytes, "Bytes held; N is rounded up to 16 and K to 64.")
        .def_prop_ro("last_isa", &PackedLlmInt8::last_isa, "What the kernel of the last matmul said it is.");
}

}  // namespace qk::llm_int8
