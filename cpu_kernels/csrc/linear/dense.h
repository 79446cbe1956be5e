// Weights that are multiplied as stored: no blocks, no minimum, one sum over all K in the registers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linear/weight.h"

namespace qk::linear {

// A group meets one 32-bit word of activations: 4 int8, 2 bfloat16, 1 float. Panels hold group after group,
//
//     group  | row 0: k .. | row 1: k .. | ... | row 15: k .. |     64 bytes, of f16 weights 32
//
// so that one word is broadcast and multiplied with 16 output rows, and nothing is summed across lanes.
struct Panels {
    const std::byte* data;
    int64_t panel_bytes;
    int64_t num_groups;  // in the rows and in a prepared token
    int64_t num_rows;    // N

    const std::byte* at(int64_t panel) const { return data + panel * panel_bytes; }
};

// Bytes from a token to the next: whole cache lines, an odd number of them. A tile reads a dozen tokens side by side;
// 4096 bytes apart, all would fall into one set of 8 lines of the L1.
constexpr size_t token_stride(size_t bytes) {
    const size_t lines = (bytes + 63) / 64;
    return 64 * (lines | 1);
}

constexpr int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace qk::linear
