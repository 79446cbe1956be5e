#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <optional>
#include <string>

#include "checks.h"
#include "trellis/trellis.h"

namespace qk::trellis {
namespace {

using namespace nb::literals;

Code checked_code(int bits, int state_bits) {
    if (bits < 1 || bits > most_bits || state_bits < least_state_bits || state_bits > most_state_bits)
        throw std::invalid_argument("bits, state_bits: got " + std::to_string(bits) + ", " +
                                    std::to_string(state_bits) + ", expected 1 to 4, 8 to 16");
    return {bits, state_bits};
}

nb::tuple encode_py(const Array& x, int bits, int state_bits, const std::optional<std::string>& isa) {
    const Code code = checked_code(bits, state_bits);
    require_matrix(x, "x", nb::dtype<float>(), "float32 [tiles, 256]");
    require_columns(x, "x", tile);
    const auto* data = static_cast<const float*>(x.data());
    for (size_t i = 0; i < x.size(); i++)
        if (!std::isfinite(data[i])) throw std::invalid_argument("x: got NaN or infinity, expected finite values");
    const auto& impl = choose("trellis", table(), isa ? std::optional<std::string_view>(*isa) : std::nullopt);
    const auto num_tiles = static_cast<int64_t>(x.shape(0));
    const NewArray<uint16_t> packed(num_tiles, code.words());
    Isa ran;
    {
        nb::gil_scoped_release release;
        ran = encode(code, data, num_tiles, packed.data, impl);
    }
    return nb::make_tuple(packed.array, name_of(ran));
}

nb::object decode_py(const Array& packed, int bits, int state_bits) {
    const Code code = checked_code(bits, state_bits);
    require_matrix(packed, "packed", nb::dtype<uint16_t>(), "uint16 [tiles, 16 * bits]");
    require_columns(packed, "packed", code.words());
    const auto* data = static_cast<const uint16_t*>(packed.data());
    const NewArray<float> values(static_cast<int64_t>(packed.shape(0)), tile);
    {
        nb::gil_scoped_release release;
        decode(code, data, static_cast<int64_t>(packed.shape(0)), values.data);
    }
    return values.array;
}

}  // namespace

void bind(nb::module_& m) {
    const char* doc = "What cpu_kernels.trellis says; trellis_encode returns the instruction set that ran, too.";
    m.def("trellis_encode", encode_py, "x"_a, "bits"_a, "state_bits"_a, "isa"_a.none() = nb::none(), doc);
    m.def("trellis_decode", decode_py, "packed"_a, "bits"_a, "state_bits"_a, doc);
}

}  // namespace qk::trellis
