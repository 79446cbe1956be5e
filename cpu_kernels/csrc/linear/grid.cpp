#include "linear/grid.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace qk::linear {

void fill(Grid& grid, const uint8_t* points) {
    const auto magnitudes = grid.levels.first(grid.point_size == 4 ? 8 : 4);
    const int* bits = grid.point_size == 4 ? bits_of_4 : bits_of_8;
    for (int p = 0; p < grid.num_points; p++) {
        unsigned word = 0;
        for (int i = 0; i < grid.point_size; i++, points++) {
            const auto found = std::find(magnitudes.begin(), magnitudes.end(), *points);
            if (found == magnitudes.end())
                throw std::invalid_argument("grid: got the magnitude " + std::to_string(*points) +
                                            ", which is not among the format's levels");
            word |= static_cast<unsigned>(found - magnitudes.begin()) << bits[i];
        }
        grid.words[p] = static_cast<uint16_t>(word);
    }
    grid.is_filled = true;
}

}  // namespace qk::linear
