// Formats of points of a grid with signs, 4 or 8 weights each. A panel keeps of a step of 32 weights:
//
//     low     64 bytes per 4 points   byte i of a row's word: the low 8 bits of point i
//     signs   64 bytes                bit 8 i + g / 2 + 4 (g % 2) of a row's word: set if weight 4 g + i is negative
//     high    16 bytes, if there are  a row's byte: the further bits of its points, see `high_bits`
//
// If 8 weights have an even number of signs, the last of them follows from the others. These four bits of a step, 28 to
// 31, then have the scale or the further bits of the points.
//
// A layout has
//     point_size, num_points    weights of a point, and points of the grid
//     levels                    magnitudes of weights, then the same with a sign; a point has 3 or 2 bits of each weight
//     even_signs                8 weights have an even number of signs
//     scale_in_signs            bits 28 to 31 of the signs are the step's scale
//     read_step                 a step of a block
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace qk::layout {

// The eighth sign makes their number even.
inline uint8_t with_eighth(uint32_t seven) {
    return static_cast<uint8_t>(seven | static_cast<uint32_t>(std::popcount(seven)) << 7);
}

struct LatticeStep {
    int point[8];
    uint8_t signs[4];  // of 8 weights each
    uint32_t scale;  // for scale_in_signs

    // Four times 7 signs and a scale of 4 bits
    void take_scaled_signs(const uint8_t* from) {
        uint32_t word;
        std::memcpy(&word, from, 4);
        for (int i = 0; i < 4; i++) signs[i] = with_eighth(word >> 7 * i & 127);
        scale = word >> 28;
    }
};

// Bits of the number of a point beyond 8.
template <class Layout>
constexpr int further_bits() {
    return Layout::num_points == 1024 ? 2 : Layout::num_points == 512 ? 1 : 0;
}

// Two points are looked up at once, i and i + 2 of four: the first of all pairs have the lower bits of the result, and
// those of their second ones follow.
template <class Layout>
uint32_t high_bits(const LatticeStep& step) {
    constexpr int num_points = 32 / Layout::point_size, bits = further_bits<Layout>();
    uint32_t high = 0;
    for (int p = 0; p < num_points; p++) {
        const int pair = p / 4 * 2 + p % 2, second = p / 2 % 2;
        high |= static_cast<uint32_t>(step.point[p] >> 8) << (second * num_points / 2 + pair) * bits;
    }
    return high;
}

template <class Layout>
void pack_lattice(const uint8_t* block, int row, uint8_t* to) {
    constexpr int num_points = 32 / Layout::point_size, vectors = num_points / 4;
    for (int s = 0; s < Layout::block_size / 32; s++, to += Layout::step_bytes) {
        const LatticeStep step = Layout::read_step(block, s);
        for (int p = 0; p < num_points; p++) to[p / 4 * 64 + row * 4 + p % 4] = static_cast<uint8_t>(step.point[p]);
        uint32_t signs = 0;
        for (int k = 0; k < 32; k++) signs |= (step.signs[k / 8] >> k % 8 & 1u) << (k % 4 * 8 + k / 8 + k / 4 % 2 * 4);
        if (Layout::even_signs)
            signs = (signs & 0x0fffffff) | (Layout::scale_in_signs ? step.scale : high_bits<Layout>(step)) << 28;
        else if (further_bits<Layout>())
            to[(vectors + 1) * 64 + row] = static_cast<uint8_t>(high_bits<Layout>(step));
        std::memcpy(to + vectors * 64 + row * 4, &signs, 4);
    }
}

}  // namespace qk::layout
