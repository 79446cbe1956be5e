// The grids of lattice formats, as kernels look their points up.
#pragma once

#include <cstdint>
#include <span>

namespace qk::linear {

// A word per point: the place of each weight's magnitude among the layout's levels, so that two shifts and masks leave
// a byte for each of four weights. The bit at which each weight's begins:
inline constexpr int bits_of_4[] = {0, 8, 4, 12};
inline constexpr int bits_of_8[] = {0, 8, 2, 10, 4, 12, 6, 14};

template <class Layout>
inline uint16_t grid_words[Layout::num_points];

struct Grid {
    int num_points, point_size;
    std::span<const int> levels;  // the magnitudes first
    uint16_t* words;
    bool is_filled = false;
};

// That of a format; null for those without. Its words are there after fill.
template <class Layout>
Grid* grid_of() {
    if constexpr (requires { Layout::num_points; }) {
        static Grid grid{Layout::num_points, Layout::point_size, Layout::levels, grid_words<Layout>};
        return &grid;
    } else {
        return nullptr;
    }
}

// points  [num_points, point_size] magnitudes. Throws std::invalid_argument for one that is not among the levels.
void fill(Grid& grid, const uint8_t* points);

}  // namespace qk::linear
