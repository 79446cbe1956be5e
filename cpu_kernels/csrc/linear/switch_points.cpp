#include "linear/switch_points.h"

#include <map>
#include <stdexcept>

#include "linear/block.h"

namespace qk::linear {
namespace {

// AMX has no direct path, and products of few tokens go to AVX-512 VNNI there: the two share their points.
int family_of(Isa isa) { return static_cast<int>(isa == Isa::amx ? Isa::avx512_vnni : isa); }

std::atomic<int64_t> version{0};

using Points = std::map<std::string, SwitchPoints, std::less<>>;

Points& all_points() {
    static Points points = [] {
        Points made;
        for (const BlockFormat& format : block_formats()) made[format.op];
        for (const GroupFormat& format : group_formats()) made[format.op];
        for (const TrellisFormat& format : trellis_formats()) made[format.op];
        return made;
    }();
    return points;
}

}  // namespace

void SwitchPoints::set(Isa isa, int64_t most_direct, int64_t least_rerounded, std::optional<int64_t> least_bf16) {
    if (most_direct < 0 || least_rerounded < 1 || least_bf16.value_or(1) < 1)
        throw std::invalid_argument("switch points: got " + std::to_string(most_direct) + ", " +
                                    std::to_string(least_rerounded) +
                                    (least_bf16 ? " and " + std::to_string(*least_bf16) : "") +
                                    " tokens, expected 0 or more, and 1 or more for the others");
    most_direct_ = most_direct;
    least_rerounded_ = least_rerounded;
    least_bf16_ = least_bf16.value_or(0);
    isa_ = family_of(isa);
    version++;
}

void SwitchPoints::clear() {
    isa_ = none;
    version++;
}

int64_t switch_points_version() { return version; }

Switches SwitchPoints::of(Isa isa, const Switches& shipped) const {
    if (isa_ != family_of(isa)) return shipped;
    return {most_direct_, least_rerounded_, least_bf16_ ? least_bf16_.load() : shipped.least_bf16};
}

SwitchPoints& switch_points(std::string_view op) {
    const auto found = all_points().find(op);
    if (found == all_points().end())
        throw std::invalid_argument("op: got " + std::string(op) +
                                    ", expected a linear of blocks or groups of codes, or of a trellis");
    return found->second;
}

void clear_switch_points() {
    for (auto& [op, points] : all_points()) points.clear();
}

}  // namespace qk::linear
