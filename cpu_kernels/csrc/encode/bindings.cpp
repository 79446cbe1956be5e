#include "encode/bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <string>

#include "checks.h"
#include "encode/encode.h"

namespace qk::encode {
namespace {

using namespace nb::literals;

nb::dict encoded_formats() {
    nb::dict formats;
    for (const auto& encoder : encoders())
        formats[encoder.format] = nb::make_tuple(encoder.block_size, encoder.block_bytes);
    return formats;
}

nb::object bytes_array(std::unique_ptr<uint8_t[]> owned, size_t rows, size_t columns) {
    const nb::capsule owner(owned.get(), [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
    const size_t shape[] = {rows, columns};
    return nb::cast(nb::ndarray<nb::numpy, uint8_t>(owned.release(), 2, shape, owner));
}

nb::tuple encode_blocks(const std::string& format, const Array& blocks, const std::optional<Array>& importance,
                        bool best, const std::optional<std::string>& isa) {
    const Encoder& encoder = find_codec(encoders(), format);
    const std::string expected = "float32 [B, " + std::to_string(encoder.block_size) + "]";
    require_matrix(blocks, "blocks", nb::dtype<float>(), expected);
    require_columns(blocks, "blocks", encoder.block_size);
    Job job{static_cast<const float*>(blocks.data()), nullptr, 0, nullptr, best};
    if (importance) {
        require_matrix(*importance, "importance", nb::dtype<float>(), expected);
        require_columns(*importance, "importance", encoder.block_size);
        job.importance = static_cast<const float*>(importance->data());
        job.importance_period = static_cast<int64_t>(importance->shape(0));
        if (job.importance_period == 0) throw std::invalid_argument("importance: got 0 rows, expected 1 or more");
    }
    const auto num_blocks = static_cast<int64_t>(blocks.shape(0));
    const auto& impl =
        choose(encoder.op, encoder.table, isa ? std::optional<std::string_view>(*isa) : std::nullopt);
    auto out = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(num_blocks * encoder.block_bytes));
    job.out = out.get();
    Isa ran;
    {
        nb::gil_scoped_release release;
        ran = run(encoder, job, num_blocks, impl);
    }
    return nb::make_tuple(bytes_array(std::move(out), blocks.shape(0), encoder.block_bytes), name_of(ran));
}

}  // namespace

void bind(nb::module_& m) {
    m.def("encoded_formats", encoded_formats, "format name -> (block_size, block_bytes) of every encoder.");
    m.def("encode_blocks", encode_blocks, "format"_a, "blocks"_a, "importance"_a.none(), "best"_a, "isa"_a.none(),
          "(bytes [B, block_bytes] uint8, the instruction set that ran); cpu_kernels.encode says what they mean.");
}

}  // namespace qk::encode
