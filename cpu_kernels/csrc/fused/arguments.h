// Arguments of the bindings of the fused steps, checked.
#pragma once

#include <optional>
#include <string>

#include "checks.h"
#include "fused/group/group.h"

namespace qk::fused {

// x float32 [M, K], whose rows may be apart: some columns of a wider matrix.
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

// An argument that all layers share or that each layer has its own of: a list, or an array with an axis more.
class PerLayer {
public:
    PerLayer(nb::handle argument, const char* name, size_t num_layers, bool is_shared) : name_(name) {
        if (argument.is_none()) return;
        if (!is_shared && nb::len(argument) != num_layers)
            throw std::invalid_argument(std::string(name) + ": got " + std::to_string(nb::len(argument)) +
                                        " entries, expected one for each of " + std::to_string(num_layers) + " layers");
        for (size_t i = 0; i < num_layers; i++)
            entries_.push_back(is_shared ? nb::borrow(argument) : nb::object(argument[nb::int_(i)]));
    }

    // None if there is no argument.
    nb::handle operator[](size_t i) const { return entries_.empty() ? nb::handle(Py_None) : nb::handle(entries_[i]); }

    std::optional<Array> array(size_t i) const {
        const nb::handle entry = (*this)[i];
        if (entry.is_none()) return std::nullopt;
        Array array;
        if (!nb::try_cast(entry, array))
            throw nb::type_error((std::string(name_) + ": expected an array for layer " + std::to_string(i)).c_str());
        return array;
    }

    Array required(size_t i) const {
        const std::optional<Array> its = array(i);
        if (!its) throw nb::type_error((std::string(name_) + ": got None for layer " + std::to_string(i)).c_str());
        return *its;
    }

private:
    const char* name_;
    std::vector<nb::object> entries_;
};

inline bool is_array(nb::handle argument) {
    Array array;
    return nb::try_cast(argument, array);
}

inline bool is_vector(nb::handle argument) {
    Array array;
    return nb::try_cast(argument, array) && array.ndim() == 1;
}

}  // namespace qk::fused
