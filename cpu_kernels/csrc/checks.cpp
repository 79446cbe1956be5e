#include "checks.h"

namespace qk {

nb::object empty_float32(int64_t rows, int64_t columns, float** data) {
    const NewArray<float> made(rows, columns);
    if (data) *data = made.data;
    return made.array;
}

float* require_output(nb::handle out, const char* name, int64_t rows, int64_t columns) {
    const std::string expected = "float32 [" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
    nb::ndarray<nb::device::cpu> array;
    if (!nb::try_cast(out, array))
        throw nb::type_error((std::string(name) + ": expected a writable " + expected).c_str());
    require_matrix(array, name, nb::dtype<float>(), expected);
    if (static_cast<int64_t>(array.shape(0)) != rows || static_cast<int64_t>(array.shape(1)) != columns)
        throw std::invalid_argument(std::string(name) + ": got " + describe(array) + ", expected " + expected);
    return static_cast<float*>(array.data());
}

void require_apart(const float* out, int64_t rows, int64_t columns, const Array& x, const char* name) {
    if (rows * columns == 0 || x.size() == 0) return;
    const auto item_bytes = static_cast<int64_t>(x.itemsize());
    auto begin = reinterpret_cast<intptr_t>(x.data()), end = begin + item_bytes;  // of all that x spans
    for (size_t axis = 0; axis < x.ndim(); axis++) {
        const int64_t bytes = (static_cast<int64_t>(x.shape(axis)) - 1) * x.stride(axis) * item_bytes;
        (bytes < 0 ? begin : end) += bytes;
    }
    const auto out_begin = reinterpret_cast<intptr_t>(out);
    if (end <= out_begin || out_begin + rows * columns * static_cast<int64_t>(sizeof(float)) <= begin) return;
    const bool is_x = x.data() == out && x.ndim() == 2 && static_cast<int64_t>(x.shape(1)) == columns &&
                      (rows == 1 || x.stride(0) == columns);
    if (!is_x)
        throw std::invalid_argument(std::string("out: got memory that overlaps ") + name + ", " + describe(x) +
                                    ", expected all of it or none");
}

}  // namespace qk
