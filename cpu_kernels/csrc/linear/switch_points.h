// Switch points between the paths of a product: those that `qbench tune` measured on this machine, or the shipped ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "isa.h"

namespace qk::linear {

// direct up to `most_direct` tokens, int8x256 from `least_rerounded` on for formats that have it, and bf16 from
// `least_bf16` on if the processor has AMX
struct Switches { int64_t most_direct, least_rerounded, least_bf16; };

// The switch points of one op, which hold for one instruction set. Results change with the path, so set them before the
// first product.
class SwitchPoints {
public:
    // least_bf16: nullopt if it was not measured; the shipped one then holds
    void set(Isa isa, int64_t most_direct, int64_t least_rerounded, std::optional<int64_t> least_bf16);
    void clear();

    // shipped: for instruction sets that nothing was measured for
    Switches of(Isa isa, const Switches& shipped) const;

private:
    static constexpr int none = -1;

    std::atomic<int> isa_{none};
    std::atomic<int64_t> most_direct_{0}, least_rerounded_{0};
    std::atomic<int64_t> least_bf16_{0};  // 0: the shipped one
};

// The points of the op "linear_q4_0" or another of block_formats(), group_formats() and trellis_formats(), as long as
// the library lives. Throws std::invalid_argument for another op.
SwitchPoints& switch_points(std::string_view op);

// Grows whenever a switch point is set or cleared.
int64_t switch_points_version();

// All ops are back at the shipped points.
void clear_switch_points();

}  // namespace qk::linear
