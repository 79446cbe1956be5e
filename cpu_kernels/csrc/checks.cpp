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

}  // namespace qk
