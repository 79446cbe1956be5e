#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "block_codec_bindings.h"
#include "checks.h"
#include "decode/decode.h"

namespace qk::decode {
namespace {

using namespace nb::literals;

nb::tuple decode_blocks(const std::string& format, const Array& blocks, const std::optional<std::string>& isa,
                        std::optional<nb::object> out) {
    const Decoder& decoder = find_codec(decoders(), format);
    require_matrix(blocks, "blocks", nb::dtype<uint8_t>(), "uint8 [B, " + std::to_string(decoder.block_bytes) + "]");
    require_columns(blocks, "blocks", decoder.block_bytes);
    const auto num_blocks = static_cast<int64_t>(blocks.shape(0));
    const auto& impl = chosen(decoder, isa);
    if (!out) out = empty_float32(num_blocks, decoder.block_size);
    float* weights = require_output(*out, "out", num_blocks, decoder.block_size);
    require_apart(weights, num_blocks, decoder.block_size, blocks, "blocks");
    const Job job{static_cast<const uint8_t*>(blocks.data()), weights};
    Isa ran;
    {
        nb::gil_scoped_release release;
        ran = run(decoder, job, num_blocks, impl);
    }
    return nb::make_tuple(*out, name_of(ran));
}

}  // namespace

void bind(nb::module_& m) {
    m.def(
        "decoded_formats", [] { return formats_of(decoders()); },
        "format name -> (block_size, block_bytes) of every decoder.");
    m.def("decode_blocks", decode_blocks, "format"_a, "blocks"_a, "isa"_a.none(), "out"_a = nb::none(),
          "(weights [B, block_size] float32, the instruction set that ran); cpu_kernels.decode says what they mean.");
}

}  // namespace qk::decode
