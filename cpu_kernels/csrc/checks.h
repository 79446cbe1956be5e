// Arguments from Python, checked before a byte is touched: got, expected.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace qk {

namespace nb = nanobind;

using Array = nb::ndarray<nb::ro, nb::device::cpu>;  // NumPy, or a torch tensor on the CPU

template <class AnyArray>
std::string describe(const AnyArray& array) {
    const auto dtype = array.dtype();
    const char* const kinds[] = {"int", "uint", "float", "void", "bfloat", "complex", "bool"};
    std::string text = dtype.code < 7 ? kinds[dtype.code] : "dtype";
    text += std::to_string(dtype.bits) + " [";
    for (size_t i = 0; i < array.ndim(); i++) text += (i ? ", " : "") + std::to_string(array.shape(i));
    return text + "]";
}

template <class AnyArray>
void require_type(const AnyArray& array, size_t ndim, const std::string& got, nb::dlpack::dtype dtype,
                  const std::string& expected) {
    if (array.dtype() != dtype) throw nb::type_error((got + ", expected " + expected).c_str());
    if (array.ndim() != ndim) throw std::invalid_argument(got + ", expected " + expected);
    const auto bytes = static_cast<uintptr_t>(dtype.bits / 8);
    if (array.size() > 0 && reinterpret_cast<uintptr_t>(array.data()) % bytes)
        throw std::invalid_argument(got + " at an address that is no multiple of " + std::to_string(bytes) +
                                    ", expected " + expected + ", aligned");
}

template <class AnyArray>
void require_vector(const AnyArray& array, const char* name, nb::dlpack::dtype dtype, const std::string& expected) {
    const std::string got = std::string(name) + ": got " + describe(array);
    require_type(array, 1, got, dtype, expected);
    if (array.shape(0) > 1 && array.stride(0) != 1)
        throw std::invalid_argument(got + " with stride " + std::to_string(array.stride(0)) + ", expected contiguous");
}

template <class AnyArray>
void require_matrix(const AnyArray& array, const char* name, nb::dlpack::dtype dtype, const std::string& expected) {
    const std::string got = std::string(name) + ": got " + describe(array);
    require_type(array, 2, got, dtype, expected);
    const auto rows = static_cast<int64_t>(array.shape(0)), columns = static_cast<int64_t>(array.shape(1));
    const bool contiguous = (columns <= 1 || array.stride(1) == 1) && (rows <= 1 || array.stride(0) == columns);
    if (!contiguous && rows * columns > 0)
        throw std::invalid_argument(got + " with strides " + std::to_string(array.stride(0)) + ", " +
                                    std::to_string(array.stride(1)) + ", expected contiguous rows");
}

template <class AnyArray>
void require_columns(const AnyArray& array, const char* name, int64_t columns) {
    if (static_cast<int64_t>(array.shape(1)) != columns)
        throw std::invalid_argument(std::string(name) + ": got " + describe(array) + ", expected " +
                                    std::to_string(columns) + " columns");
}

// require_matrix of exactly [rows, columns]; `type` is the dtype's name.
template <class AnyArray>
void require_shape(const AnyArray& array, const char* name, nb::dlpack::dtype dtype, const char* type, int64_t rows,
                   int64_t columns) {
    const std::string expected = std::string(type) + " [" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
    require_matrix(array, name, dtype, expected);
    if (static_cast<int64_t>(array.shape(0)) != rows || static_cast<int64_t>(array.shape(1)) != columns)
        throw std::invalid_argument(std::string(name) + ": got " + describe(array) + ", expected " + expected);
}

// A new NumPy array [rows, columns], not initialised, and its memory.
template <class T>
struct NewArray {
    nb::object array;
    T* data;

    NewArray(int64_t rows, int64_t columns, nb::dlpack::dtype dtype = nb::dtype<T>()) {
        auto owned = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(rows * columns));
        data = owned.get();
        const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
        owned.release();
        const size_t shape[] = {static_cast<size_t>(rows), static_cast<size_t>(columns)};
        array = nb::cast(nb::ndarray<nb::numpy>(data, 2, shape, owner, nullptr, dtype));
    }
};

// One of float32; `data`, if given, gets its memory.
nb::object empty_float32(int64_t rows, int64_t columns, float** data = nullptr);

// The memory of a writable float32 [rows, columns], contiguous.
float* require_output(nb::handle out, const char* name, int64_t rows, int64_t columns);

// Throws if out [rows, columns] would be written over a part of x that is yet to be read: it is apart from x, or
// is x itself, row upon row.
void require_apart(const float* out, int64_t rows, int64_t columns, const Array& x, const char* name);

}  // namespace qk
