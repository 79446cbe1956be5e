#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "linear/makers.h"
#include "linear_trellis/weight.h"

namespace qk::linear_trellis {
namespace {

// A name as quant writes it: trellis-w{1,2,3,4}, then -l and the bits of a state, 8 to 15, or nothing for 16.
struct Name {
    const linear::TrellisFormat* format;
    int state_bits;
};

std::optional<Name> parse(std::string_view name) {
    for (const linear::TrellisFormat& format : linear::trellis_formats()) {
        if (!name.starts_with(format.name)) continue;
        const std::string_view rest = name.substr(format.name.size());
        if (rest.empty()) return Name{&format, trellis::most_state_bits};
        int state_bits = 0;
        const char* end = name.data() + name.size();
        const auto [stop, error] = std::from_chars(rest.data() + std::min<size_t>(2, rest.size()), end, state_bits);
        const bool is_number = rest.starts_with("-l") && error == std::errc() && stop == end;
        if (is_number && state_bits >= trellis::least_state_bits && state_bits <= trellis::most_state_bits)
            return Name{&format, state_bits};
    }
    return std::nullopt;
}

bool takes(std::string_view name) { return parse(name).has_value(); }

void require_tiles(const std::string& name, int64_t num_rows, int64_t row_size) {
    if (num_rows % side || row_size % side)
        throw std::invalid_argument("shape: got (" + std::to_string(num_rows) + ", " + std::to_string(row_size) +
                                    "), expected multiples of 16 for " + name);
}

size_t bytes_of(const std::string& name, int64_t num_rows, int64_t row_size) {
    require_tiles(name, num_rows, row_size);
    return packed_bytes(parse(name)->format->bits, num_rows, row_size);
}

std::shared_ptr<linear::Weight> make(const std::string& name, const linear::Parts& parts, int64_t num_rows,
                                     int64_t row_size) {
    const Name parsed = *parse(name);
    const int bits = parsed.format->bits;
    const size_t size = bytes_of(name, num_rows, row_size);
    const auto layout = layout_of(bits, parsed.state_bits, num_rows, row_size);
    if (auto packed = linear::packed_part(parts, size))
        return std::make_shared<TrellisWeight>(*parsed.format, name, num_rows, row_size, layout, std::move(*packed));
    const Array& words = linear::part(parts, "weight_trellis", name);
    const Array& scale = linear::part(parts, "weight_scale", name);
    require_shape(words, "weight_trellis", nb::dtype<uint8_t>(), "uint8", num_rows, row_size * bits / 8);
    require_shape(scale, "weight_scale", nb::dtype<float>(), "float32", num_rows, 1);
    const auto* data = static_cast<const uint8_t*>(words.data());
    const auto* scales = static_cast<const float*>(scale.data());
    nb::gil_scoped_release release;
    return std::make_shared<TrellisWeight>(*parsed.format, name, num_rows, row_size, layout,
                                           pack(layout, bits, data, scales, row_size));
}

}  // namespace

const linear::Maker trellis_maker{takes, make, bytes_of};

}  // namespace qk::linear_trellis
