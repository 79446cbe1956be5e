#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "checks.h"
#include "group_quant/group_quant.h"

namespace qk::group_quant {
namespace {

using namespace nb::literals;

constexpr nb::dlpack::dtype float16{static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};

const Impl<Kernels>& chosen(const std::optional<std::string>& isa) {
    return choose("group_quant", table(), isa ? std::optional<std::string_view>(*isa) : std::nullopt);
}

template <class T>
const T* data_of(const Array& array) {
    return static_cast<const T*>(array.data());
}

Groups groups_of(int64_t num_rows, int64_t row_size, int64_t group_size, int bits, bool symmetric) {
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
        throw std::invalid_argument("bits: got " + std::to_string(bits) + ", expected 2, 3, 4 or 8");
    if (row_size < 1 || group_size < 1 || row_size % group_size)
        throw std::invalid_argument("group_size: got " + std::to_string(group_size) +
                                    ", expected a divisor of K = " + std::to_string(row_size) + ", which is 1 or more");
    return {num_rows, row_size, group_size, bits, symmetric};
}

nb::tuple quantize_groups_py(const Array& weight, int bits, int64_t group_size, bool symmetric,
                             const std::optional<std::string>& isa) {
    require_matrix(weight, "weight", nb::dtype<float>(), "float32 [N, K]");
    const Groups groups = groups_of(static_cast<int64_t>(weight.shape(0)), static_cast<int64_t>(weight.shape(1)),
                                    group_size, bits, symmetric);
    const auto& impl = chosen(isa);
    const NewArray<int32_t> packed(groups.num_rows, groups.packed_bytes() / 4);
    const NewArray<uint16_t> scale(groups.num_rows, groups.num_groups(), float16);
    const NewArray<int8_t> zero_point(groups.num_rows, symmetric ? 0 : groups.num_groups());
    Isa ran;
    {
        nb::gil_scoped_release release;
        ran = quantize_groups(groups, data_of<float>(weight), reinterpret_cast<uint8_t*>(packed.data), scale.data,
                              symmetric ? nullptr : zero_point.data, impl);
    }
    return nb::make_tuple(packed.array, scale.array, symmetric ? nb::none() : zero_point.array, name_of(ran));
}

const int32_t* checked_group_of(const Array& group_of, const Groups& groups) {
    require_vector(group_of, "group_of", nb::dtype<int32_t>(), "int32 [K]");
    if (static_cast<int64_t>(group_of.shape(0)) != groups.row_size)
        throw std::invalid_argument("group_of: got " + describe(group_of) + ", expected int32 [" +
                                    std::to_string(groups.row_size) + "]");
    const auto* data = data_of<int32_t>(group_of);
    for (int64_t k = 0; k < groups.row_size; k++)
        if (data[k] < 0 || data[k] >= groups.num_groups())
            throw std::invalid_argument("group_of: got " + std::to_string(data[k]) + ", expected 0 to " +
                                        std::to_string(groups.num_groups() - 1));
    return data;
}

nb::tuple dequantize_groups_py(const Array& packed, const Array& scale, const std::optional<Array>& zero_point,
                               const std::optional<Array>& group_of, int bits, int64_t row_size,
                               const std::optional<std::string>& isa) {
    require_matrix(scale, "scale", float16, "float16 [N, G]");
    const auto num_groups = static_cast<int64_t>(scale.shape(1));
    if (num_groups < 1 || row_size % num_groups)
        throw std::invalid_argument("scale: got " + describe(scale) +
                                    ", expected [N, G] with G a divisor of K = " + std::to_string(row_size));
    const Groups groups =
        groups_of(static_cast<int64_t>(scale.shape(0)), row_size, row_size / num_groups, bits, !zero_point.has_value());
    require_shape(packed, "packed", nb::dtype<int32_t>(), "int32", groups.num_rows, groups.packed_bytes() / 4);
    if (zero_point) require_shape(*zero_point, "zero_point", nb::dtype<int8_t>(), "int8", groups.num_rows, num_groups);
    const int32_t* order = group_of ? checked_group_of(*group_of, groups) : nullptr;
    const auto& impl = chosen(isa);
    float* weight = nullptr;
    nb::object out = empty_float32(groups.num_rows, row_size, &weight);
    Isa ran;
    {
        nb::gil_scoped_release release;
        ran = dequantize_groups(groups, data_of<uint8_t>(packed), data_of<uint16_t>(scale),
                                zero_point ? data_of<int8_t>(*zero_point) : nullptr, order, weight, impl);
    }
    return nb::make_tuple(out, name_of(ran));
}

// (int8 codes [N, K], one float per row, the instruction set that ran), as quantize(weight, N, K, q, of_rows, impl)
// writes them.
template <class Quantize>
nb::tuple int8_rows(const Array& weight, const std::optional<std::string>& isa, const Quantize& quantize) {
    require_matrix(weight, "weight", nb::dtype<float>(), "float32 [N, K]");
    const auto num_rows = static_cast<int64_t>(weight.shape(0)), row_size = static_cast<int64_t>(weight.shape(1));
    const auto& impl = chosen(isa);
    const NewArray<int8_t> q(num_rows, row_size);
    const NewArray<float> of_rows(num_rows, 1);
    Isa ran;
    {
        nb::gil_scoped_release release;
        ran = quantize(data_of<float>(weight), num_rows, row_size, q.data, of_rows.data, impl);
    }
    return nb::make_tuple(q.array, of_rows.array, name_of(ran));
}

nb::tuple quantize_rows_py(const Array& weight, bool per_tensor, const std::optional<std::string>& isa) {
    return int8_rows(weight, isa,
                     [&](const float* values, int64_t num_rows, int64_t row_size, int8_t* q, float* scale,
                         const Impl<Kernels>& impl) {
                         return quantize_rows(values, num_rows, row_size, per_tensor, q, scale, impl);
                     });
}

nb::tuple quantize_llm_int8_py(const Array& weight, const std::optional<std::string>& isa) {
    return int8_rows(weight, isa, quantize_llm_int8);
}

nb::tuple dequantize_rows_py(const Array& q, const Array& scale, const std::optional<std::string>& isa) {
    require_matrix(q, "q", nb::dtype<int8_t>(), "int8 [N, K]");
    const auto num_rows = static_cast<int64_t>(q.shape(0)), row_size = static_cast<int64_t>(q.shape(1));
    require_shape(scale, "scale", nb::dtype<float>(), "float32", num_rows, 1);
    const auto& impl = chosen(isa);
    float* weight = nullptr;
    nb::object out = empty_float32(num_rows, row_size, &weight);
    Isa ran;
    {
        nb::gil_scoped_release release;
        ran = dequantize_rows(data_of<int8_t>(q), data_of<float>(scale), num_rows, row_size, weight, impl);
    }
    return nb::make_tuple(out, name_of(ran));
}

}  // namespace

void bind(nb::module_& m) {
    const char* doc = "What cpu_kernels.group_quant says, and last the instruction set that ran.";
    m.def("quantize_groups", quantize_groups_py, "weight"_a, "bits"_a, "group_size"_a, "symmetric"_a, "isa"_a.none(),
          doc);
    m.def("dequantize_groups", dequantize_groups_py, "packed"_a, "scale"_a, "zero_point"_a.none(), "group_of"_a.none(),
          "bits"_a, "row_size"_a, "isa"_a.none(), doc);
    m.def("quantize_rows", quantize_rows_py, "weight"_a, "per_tensor"_a, "isa"_a.none(), doc);
    m.def("quantize_llm_int8", quantize_llm_int8_py, "weight"_a, "isa"_a.none(), doc);
    m.def("dequantize_rows", dequantize_rows_py, "q"_a, "scale"_a, "isa"_a.none(), doc);
}

}  // namespace qk::group_quant
