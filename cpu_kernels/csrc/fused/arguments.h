// What the bindings of the fused steps take, checked.
#pragma once

#include <optional>
#include <string>

#include "checks.h"
#include "fused/group/group.h"

namespace qk::fused {

// x float32 [M, K], the rows of which may stand apart: some columns of a wider matrix.
inline Rows rows_of(const Array& x, const char* name) {
    const std::string got = std::string(name) + ": got " + describe(x);
    require_type(x, 2, got, nb::dtype<float>(), "float32 [M, K]");
    const auto count = static_cast<int64_t>(x.shape(0)), size = static_cast<int64_t>(x.shape(1));
    if (count > 0 && size > 1 && x.stride(1) != 1)
        throw std::invalid_argument(got + " with stride " + std::to_string(x.stride(1)) +
                                    " within a row, expected contiguous rows");
    return {static_cast<const float*>(x.data()), count, size, x.stride(0)};
}

// x float32 [size], contiguous.
inline const float* vector_of(const Array& x, const char* name, int64_t size) {
    const std::string expected = "float32 [" + std::to_string(size) + "]";
    require_vector(x, name, nb::dtype<float>(), expected);
    if (static_cast<int64_t>(x.shape(0)) != size)
        throw std::invalid_argument(std::string(name) + ": got " + describe(x) + ", expected " + expected);
    return static_cast<const float*>(x.data());
}

// Reads the environment.
inline const Impl<RowSteps>& choose_steps(const std::optional<std::string>& isa) {
    return choose("fused_rows", row_steps_table(), isa ? std::optional<std::string_view>(*isa) : std::nullopt);
}

}  // namespace qk::fused
