#include "bindings.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "checks.h"
#include "gram/gram.h"

namespace qk::gram {
namespace {

using namespace nb::literals;

std::string add_gram(const Array& x, nb::handle gram, const std::optional<std::string>& isa) {
    require_matrix(x, "x", nb::dtype<float>(), "float32 [M, K]");
    const auto num_tokens = static_cast<int64_t>(x.shape(0)), row_size = static_cast<int64_t>(x.shape(1));
    float* out = require_output(gram, "gram", row_size, row_size);
    const auto& impl = choose("gram", table(), isa ? std::optional<std::string_view>(*isa) : std::nullopt);
    const auto* data = static_cast<const float*>(x.data());
    nb::gil_scoped_release release;
    return name_of(add(data, num_tokens, row_size, out, impl));
}

}  // namespace

void bind(nb::module_& m) {
    m.def("add_gram", add_gram, "x"_a, "gram"_a, "isa"_a.none() = nb::none(),
          "gram += x^T x, x rounded to bfloat16, on and above the diagonal; below it gram is left in any state.\n\n"
          "x        [M, K] float32, contiguous\n"
          "gram     [K, K] float32, contiguous, written\n"
          "returns  the instruction set that ran\n"
          "raises   ValueError (shape, strides), TypeError (dtype), RuntimeError (isa not on this machine)");
}

}  // namespace qk::gram
