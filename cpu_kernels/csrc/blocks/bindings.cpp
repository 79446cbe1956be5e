#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <string>

#include "attention/arguments.h"
#include "blocks/blocks.h"
#include "checks.h"

namespace qk::blocks {
namespace {

using namespace nb::literals;

using Output = nb::ndarray<nb::device::cpu>;

// The memory of a writable contiguous [shape[0], shape[1], shape[2]]
template <class Value>
Value* written(nb::handle out, const char* name, const std::string& expected, const int64_t (&shape)[3]) {
    Output array;
    if (!nb::try_cast(out, array))
        throw nb::type_error((std::string(name) + ": expected a writable " + expected).c_str());
    attention::require_cube(array, name, nb::dtype<Value>(), expected, shape);
    return static_cast<Value*>(array.data());
}

std::string score_blocks(const Array& rows, int64_t num_rows, const Array& vectors, nb::handle scores,
                         const std::optional<std::string>& isa) {
    attention::require_cube(rows, "rows", nb::dtype<uint16_t>(), "uint16 [G, room, C]", {-1, -1, -1});
    const auto heads = static_cast<int64_t>(rows.shape(0)), room = static_cast<int64_t>(rows.shape(1)),
               size = static_cast<int64_t>(rows.shape(2));
    if (size % lanes || size == 0)
        throw std::invalid_argument("rows: got " + describe(rows) + ", expected columns in multiples of " +
                                    std::to_string(lanes));
    if (num_rows < 0 || num_rows > room)
        throw std::invalid_argument("num_rows: got " + std::to_string(num_rows) + ", expected 0 to " +
                                    std::to_string(room));
    const std::string expected = "float32 [Q, " + std::to_string(heads) + ", " + std::to_string(size) + "]";
    attention::require_cube(vectors, "vectors", nb::dtype<float>(), expected, {-1, heads, size});
    const auto queries = static_cast<int64_t>(vectors.shape(0));
    auto* const out = written<float>(scores, "scores", "float32 [Q, G, num_rows]", {queries, heads, num_rows});
    const auto& impl = choose("block_scores", table(), isa ? std::optional<std::string_view>(*isa) : std::nullopt);
    nb::gil_scoped_release release;
    return name_of(score({static_cast<const uint16_t*>(rows.data()), heads, room, num_rows, size},
                         static_cast<const float*>(vectors.data()), queries, out, impl));
}

void best_blocks(const Array& scores, const Array& limits, const Array& counts, nb::handle best) {
    attention::require_cube(scores, "scores", nb::dtype<float>(), "float32 [Q, G, n]", {-1, -1, -1});
    const auto queries = static_cast<int64_t>(scores.shape(0)), heads = static_cast<int64_t>(scores.shape(1)),
               num_rows = static_cast<int64_t>(scores.shape(2));
    const std::string each = "int64 [" + std::to_string(queries) + "]";
    require_vector(limits, "limits", nb::dtype<int64_t>(), each);
    require_vector(counts, "counts", nb::dtype<int64_t>(), each);
    const auto* const limit = static_cast<const int64_t*>(limits.data());
    const auto* const count = static_cast<const int64_t*>(counts.data());
    bool fits = static_cast<int64_t>(limits.shape(0)) == queries && static_cast<int64_t>(counts.shape(0)) == queries;
    int64_t most = 0;
    for (int64_t q = 0; fits && q < queries; q++) {
        fits = 0 <= count[q] && count[q] <= limit[q] && limit[q] <= num_rows;
        most = std::max(most, count[q]);
    }
    if (!fits)
        throw std::invalid_argument("limits, counts: got " + describe(limits) + " and " + describe(counts) +
                                    ", expected " + each +
                                    ", with 0 <= counts <= limits <= " + std::to_string(num_rows));
    auto* const out = written<int64_t>(best, "best", "int64 [Q, G, max(counts)]", {queries, heads, most});
    nb::gil_scoped_release release;
    blocks::best(static_cast<const float*>(scores.data()), queries, heads, num_rows, limit, count, most, out);
}

}  // namespace

void bind(nb::module_& m) {
    m.def("score_blocks", score_blocks, "rows"_a, "num_rows"_a, "vectors"_a, "scores"_a, "isa"_a.none() = nb::none(),
          "scores[q, g, n] = rows[g, n] . vectors[q, g], as cpu_kernels.blocks.score_blocks_ref defines it.\n\n"
          "rows      [G, room, C] uint16, contiguous: bits of float16; C a multiple of 16\n"
          "num_rows  rows of each head that count\n"
          "vectors   [Q, G, C] float32, contiguous\n"
          "scores    [Q, G, num_rows] float32, contiguous, written\n"
          "returns   the instruction set that ran\n"
          "raises    ValueError (shape, strides), TypeError (dtype), RuntimeError (isa not on this machine)");
    m.def("best_blocks", best_blocks, "scores"_a, "limits"_a, "counts"_a, "best"_a,
          "The counts[q] largest of the first limits[q] scores of each query and head, as best_blocks_ref has them.\n\n"
          "scores          [Q, G, n] float32, contiguous; NaN counts as infinity\n"
          "limits, counts  [Q] int64\n"
          "best            [Q, G, max(counts)] int64, contiguous, written: rising, then -1\n"
          "raises          ValueError (shape, numbers), TypeError (dtype)");
}

}  // namespace qk::blocks
