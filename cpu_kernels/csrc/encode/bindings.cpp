#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "block_codec_bindings.h"
#include "checks.h"
#include "encode/encode.h"

namespace qk::encode {
namespace {

using namespace nb::literals;

// For an importance of 0, less or NaN the searches would keep no error, and so no weight of its block.
void require_importance(const float* importance, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!(importance[i] > 0 && importance[i] <= 1))
            throw std::invalid_argument("importance: got " + std::to_string(importance[i]) +
                                        ", expected numbers above 0 and at most 1");
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
        require_importance(job.importance, importance->size());
    }
    const auto num_blocks = static_cast<int64_t>(blocks.shape(0));
    const auto& impl = chosen(encoder, isa);
    const NewArray<uint8_t> out(num_blocks, encoder.block_bytes);
    job.out = out.data;
    Isa ran;
    {
        nb::gil_scoped_release release;
        ran = run(encoder, job, num_blocks, impl);
    }
    return nb::make_tuple(out.array, name_of(ran));
}

}  // namespace

void bind(nb::module_& m) {
    m.def(
        "encoded_formats", [] { return formats_of(encoders()); },
        "format name -> (block_size, block_bytes) of every encoder.");
    m.def("encode_blocks", encode_blocks, "format"_a, "blocks"_a, "importance"_a.none(), "best"_a, "isa"_a.none(),
          "(bytes [B, block_bytes] uint8, the instruction set that ran); cpu_kernels.encode says what they mean.");
}

}  // namespace qk::encode
