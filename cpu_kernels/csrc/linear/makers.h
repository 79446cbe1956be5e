// From named arrays to packed weights: which formats there are, and who packs each.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "buffer.h"
#include "checks.h"
#include "linear/weight.h"

namespace qk::linear {

using Parts = std::map<std::string, Array>;  // by name, as the format has them, those of the whole tensor included

struct Maker {
    // Whether this one packs the format of that name.
    bool (*takes)(std::string_view format);
    // weight [num_rows, row_size] of parts. Throws nb::type_error, std::invalid_argument, or NotImplemented for
    // formats that the kernels do not cover. Called with the GIL held, which it gives up while it packs.
    std::shared_ptr<Weight> (*make)(const std::string& format, const Parts& parts, int64_t num_rows, int64_t row_size);
    // Bytes it will hold. Throws std::invalid_argument for a shape that `make` refuses.
    size_t (*packed_bytes)(const std::string& format, int64_t num_rows, int64_t row_size);
};

// A valid weight that no kernel takes: NotImplementedError in Python.
struct NotImplemented : std::runtime_error { using std::runtime_error::runtime_error; };

// The part of this name. Throws std::invalid_argument if it is missing.
const Array& part(const Parts& parts, const char* name, std::string_view format);

// Part "packed": `size` bytes that `Weight::bytes` of such a weight gave, taken as they are. Nothing if there is no such part.
// Throws nb::type_error and std::invalid_argument for memory that no kernel could read.
std::optional<Buffer> packed_part(const Parts& parts, size_t size);

extern const Maker block_maker;  // GGUF's block formats
extern const Maker group_maker;  // integers in groups

std::span<const Maker* const> makers();

}  // namespace qk::linear

// ---- those of other folders

namespace qk::linear_float { extern const linear::Maker float_maker; }

namespace qk::linear_int8 {

extern const linear::Maker int8_maker;

// int8 [N, K], and no more K than sums can take.
void require_codes(const Array& weight, int64_t num_rows, int64_t row_size);

}  // namespace qk::linear_int8

namespace qk::linear_trellis { extern const linear::Maker trellis_maker; }
