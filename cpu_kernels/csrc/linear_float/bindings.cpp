#include <stdexcept>
#include <string>
#include <utility>

#include "linear/makers.h"
#include "linear_float/weight.h"

namespace qk::linear_float {
namespace {

bool takes(std::string_view format) { return format == "bf16" || format == "f16" || format == "f32"; }

Kind kind_of(std::string_view format) {
    if (format == "bf16") return Kind::bf16;
    return format == "f16" ? Kind::f16 : Kind::f32;
}

std::shared_ptr<linear::Weight> make(const std::string& format, const linear::Parts& parts, int64_t num_rows,
                                     int64_t row_size) {
    const Kind kind = kind_of(format);
    if (auto packed = linear::packed_part(parts, Packed::bytes(kind, num_rows, row_size)))
        return std::make_shared<FloatWeight>(Packed(kind, num_rows, row_size, std::move(*packed)));
    const Array& blocks = linear::part(parts, "blocks", format);
    require_shape(blocks, "blocks", nb::dtype<uint8_t>(), "uint8", num_rows, row_size * bytes_of(kind));
    const auto* data = static_cast<const std::byte*>(blocks.data());
    nb::gil_scoped_release release;
    return std::make_shared<FloatWeight>(Packed(kind, data, num_rows, row_size));
}

size_t packed_bytes(const std::string& format, int64_t num_rows, int64_t row_size) {
    return Packed::bytes(kind_of(format), num_rows, row_size);
}

}  // namespace

const linear::Maker float_maker{takes, make, packed_bytes};

}  // namespace qk::linear_float
