// Switch points between the paths of a product: those that `qbench tune` measured on this machine, or the shipped ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "isa.h"

namespace qk::linear {

// direct up to `most_direct` tokens, int8x256 from `least_rerounded` on for formats that have it
struct Switches { int64_t most_direct, least_rerounded; };

// The switch points of one op, which hold for one instruction set. Results change with the path, so set them before the
// first product.
class SwitchPoints {
public:
    void set(Isa isa, const Switches& measured);
    void clear();

    // shipped: for instruction sets that nothing was measured for
    Switches of(Isa isa, const Switches& shipped) const;

private:
    static constexpr int none = -1;

    std::atomic<int> isa_{none};
    std::atomic<int64_t> most_direct_{0}, least_rerounded_{0};
};

// The points of the op "linear_q4_0" or another of block_formats(), group_formats() and trellis_formats(), as long as
// the library lives. Throws std::invalid_argument for another op.
SwitchPoints& switch_points(std::string_view op);

// Grows whenever a switch point is set or cleared.
int64_t switch_points_version();

// All ops are back at the shipped points.
void clear_switch_points();

}  // namespace qk::linear
