// Arguments of attention from Python, checked.
#pragma once

#include <optional>
#include <string>

#include "attention/attention.h"
#include "attention/bindings.h"
#include "checks.h"

namespace qk::attention {

using Output = nb::ndarray<nb::device::cpu>;
using OptionalName = std::optional<std::string>;

const Impl<Kernels>& chosen(const OptionalName& isa);

// [B, heads, T, D] float32 whose last axis is contiguous; the others may have any strides.
template <class Value, class AnyArray>
Heads<Value> heads_of(const AnyArray& array, const char* name, int64_t head_dim) {
    const std::string got = std::string(name) + ": got " + describe(array);
    const std::string expected = "float32 [B, heads, T, " + std::to_string(head_dim) + "]";
    require_type(array, 4, got, nb::dtype<float>(), expected);
    const auto size = [&](size_t axis) { return static_cast<int64_t>(array.shape(axis)); };
    if (size(3) != head_dim) throw std::invalid_argument(got + ", expected " + expected);
    if (array.size() > 0 && head_dim > 1 && array.stride(3) != 1)
        throw std::invalid_argument(got + " with a last stride of " + std::to_string(array.stride(3)) + ", expected 1");
    return {static_cast<Value*>(array.data()),
            size(0),
            size(1),
            size(2),
            size(3),
            array.stride(0),
            array.stride(1),
            array.stride(2)};
}

// A writable array of the shape of `like`.
Heads<float> output_of(nb::handle out, const char* name, const Heads<const float>& like);

// An axis of one entry may have any stride.
template <class AnyArray>
bool is_contiguous(const AnyArray& array) {
    int64_t stride = 1;
    for (size_t axis = array.ndim(); axis-- > 0; stride *= static_cast<int64_t>(array.shape(axis)))
        if (array.shape(axis) > 1 && array.stride(axis) != stride) return array.size() == 0;
    return true;
}

// Throws unless the array is a contiguous [shape[0], shape[1], shape[2]]; any size at an axis whose entry is -1.
template <class AnyArray>
void require_cube(const AnyArray& array, const char* name, nb::dlpack::dtype dtype, const std::string& expected,
                  const int64_t (&shape)[3]) {
    const std::string got = std::string(name) + ": got " + describe(array);
    require_type(array, 3, got, dtype, expected);
    bool fits = is_contiguous(array);
    for (size_t axis = 0; axis < 3; axis++)
        fits = fits && (shape[axis] < 0 || static_cast<int64_t>(array.shape(axis)) == shape[axis]);
    if (!fits) throw std::invalid_argument(got + ", expected contiguous " + expected);
}

// A writable float32 [B, heads, T] of q, contiguous; null for None.
float* lse_of(nb::handle lse, const Heads<const float>& q);

}  // namespace qk::attention
