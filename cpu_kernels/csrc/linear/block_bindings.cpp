#include <algorithm>
#include <utility>

#include "linear/block_weight.h"
#include "linear/makers.h"

namespace qk::linear {
namespace {

const BlockFormat* find_format(std::string_view name) {
    const auto formats = block_formats();
    const auto found = std::find_if(formats.begin(), formats.end(), [&](const auto& f) { return name == f.name; });
    return found == formats.end() ? nullptr : &*found;
}

bool takes(std::string_view format) { return find_format(format); }

int64_t row_bytes_of(const BlockFormat& format, int64_t row_size) {
    if (row_size % format.block_size)
        throw std::invalid_argument("shape: got K = " + std::to_string(row_size) + ", expected a multiple of " +
                                    std::to_string(format.block_size) + " for " + format.name);
    return row_size / format.block_size * format.block_bytes;
}

size_t packed_bytes(const std::string& name, int64_t num_rows, int64_t row_size) {
    const BlockFormat& format = *find_format(name);
    return (num_rows + panel_rows - 1) / panel_rows * panel_rows * row_bytes_of(format, row_size);
}

// The words of a lattice come from Python, which has the grid of each format in the gguf package, before its first weight.
void require_grid(const BlockFormat& format) {
    if (!format.grid || format.grid->is_filled) return;
    const nb::object points = nb::module_::import_("cpu_kernels.grids").attr("grid_points")(format.name);
    const Array grid = nb::cast<Array>(points);
    require_shape(grid, "grid", nb::dtype<uint8_t>(), "uint8", format.grid->num_points, format.grid->point_size);
    fill(*format.grid, static_cast<const uint8_t*>(grid.data()));
}

std::shared_ptr<Weight> make(const std::string& name, const Parts& parts, int64_t num_rows, int64_t row_size) {
    const BlockFormat& format = *find_format(name);
    const int64_t row_bytes = row_bytes_of(format, row_size);
    require_grid(format);
    if (auto packed = packed_part(parts, packed_bytes(name, num_rows, row_size)))
        return over_blocks(format, num_rows, row_size, std::move(*packed));
    const Array& blocks = part(parts, "blocks", name);
    require_shape(blocks, "blocks", nb::dtype<uint8_t>(), "uint8", num_rows, row_bytes);
    const auto* data = static_cast<const uint8_t*>(blocks.data());
    nb::gil_scoped_release release;
    return pack_blocks(format, data, num_rows, row_size);
}

}  // namespace

const Maker block_maker{takes, make, packed_bytes};

}  // namespace qk::linear
