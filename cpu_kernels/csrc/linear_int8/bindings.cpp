#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "linear/makers.h"
#include "linear_int8/weight.h"

namespace qk::linear_int8 {
namespace {

using linear::Parts;

struct Format {
    std::string_view name;
    Inputs inputs;
};

// Whether the weight's scales differ from row to row does not matter here.
constexpr Format formats[] = {
    {"w8a8", Inputs::per_token},          {"w8a8-wtensor", Inputs::per_token},
    {"w8a8-atensor", Inputs::per_tensor}, {"w8a8-wtensor-atensor", Inputs::per_tensor},
    {"w8a8-astatic", Inputs::fixed},      {"w8a8-wtensor-astatic", Inputs::fixed},
};

bool takes(std::string_view name) {
    for (const Format& format : formats)
        if (format.name == name) return true;
    return false;
}

Inputs inputs_of(std::string_view name) {
    for (const Format& format : formats)
        if (format.name == name) return format.inputs;
    throw std::logic_error("not a W8A8 format: " + std::string(name));
}

float input_scale(const std::string& format, const Parts& parts) {
    const Array& scale = linear::part(parts, "input_scale", format);
    require_vector(scale, "input_scale", nb::dtype<float>(), "float32 [1]");
    if (scale.shape(0) != 1) throw std::invalid_argument("input_scale: got " + describe(scale) + ", expected [1]");
    const float value = *static_cast<const float*>(scale.data());
    if (!(value > 0) || std::isinf(value))
        throw std::invalid_argument("input_scale: got " + std::to_string(value) + ", expected a number above 0");
    return value;
}

void require_row_size(int64_t row_size) {
    if (row_size > max_row_size)
        throw std::invalid_argument("weight: got K = " + std::to_string(row_size) + ", expected at most " +
                                    std::to_string(max_row_size) + ", beyond which an int32 sum may overflow");
}

std::shared_ptr<linear::Weight> make(const std::string& format, const Parts& parts, int64_t num_rows,
                                     int64_t row_size) {
    const Inputs inputs = inputs_of(format);
    const float fixed = inputs == Inputs::fixed ? input_scale(format, parts) : 0;
    require_row_size(row_size);
    if (auto packed = linear::packed_part(parts, Packed::bytes(num_rows, row_size)))
        return std::make_shared<W8A8>(format, Packed(num_rows, row_size, std::move(*packed)), inputs, fixed);
    const Array& weight = linear::part(parts, "weight", format);
    const Array& scale = linear::part(parts, "weight_scale", format);
    require_codes(weight, num_rows, row_size);
    require_shape(scale, "weight_scale", nb::dtype<float>(), "float32", num_rows, 1);
    const auto* codes = static_cast<const int8_t*>(weight.data());
    const auto* scales = static_cast<const float*>(scale.data());
    nb::gil_scoped_release release;
    return std::make_shared<W8A8>(format, Packed(codes, scales, num_rows, row_size), inputs, fixed);
}

size_t packed_bytes(const std::string&, int64_t num_rows, int64_t row_size) {
    require_row_size(row_size);
    return Packed::bytes(num_rows, row_size);
}

}  // namespace

void require_codes(const Array& weight, int64_t num_rows, int64_t row_size) {
    require_shape(weight, "weight", nb::dtype<int8_t>(), "int8", num_rows, row_size);
    require_row_size(row_size);
}

const linear::Maker int8_maker{takes, make, packed_bytes};

}  // namespace qk::linear_int8
