#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "linear/block_weight.h"
#include "linear/makers.h"

namespace qk::linear {
namespace {

// A name as quant writes it: w{2,3,4,8}, g and the group size or nothing for one group per row, -asym.
struct GroupName {
    const GroupFormat* format = nullptr;  // null: no such name
    int64_t group_size = 0;               // 0: the whole row
};

GroupName parse(std::string_view name) {
    constexpr std::string_view asymmetric = "-asym";
    std::string_view left = name;
    const bool is_asymmetric = left.ends_with(asymmetric);
    if (is_asymmetric) left.remove_suffix(asymmetric.size());
    GroupName parsed;
    if (const size_t g = left.find('g'); g != std::string_view::npos) {
        const char* end = left.data() + left.size();
        const auto [stop, error] = std::from_chars(left.data() + g + 1, end, parsed.group_size);
        if (error != std::errc() || stop != end || parsed.group_size < 1) return {};
        left = left.substr(0, g);
    }
    const std::string kind = std::string(left) + std::string(is_asymmetric ? asymmetric : "");
    for (const GroupFormat& format : group_formats())
        if (format.name == kind) parsed.format = &format;
    return parsed;
}

// Groups are made of whole steps; others are left to the reference.
bool takes_groups(std::string_view name) {
    const GroupName parsed = parse(name);
    return parsed.format && parsed.group_size % step_size == 0;
}

// Groups that share no size have no place among blocks of one.
void require_groups(const int32_t* group_of, int64_t row_size, int64_t num_groups) {
    std::vector<int64_t> sizes(num_groups);
    for (int64_t k = 0; k < row_size; k++) {
        if (group_of[k] < 0 || group_of[k] >= num_groups)
            throw std::invalid_argument("g_idx: got group " + std::to_string(group_of[k]) + ", expected 0 to " +
                                        std::to_string(num_groups - 1));
        sizes[group_of[k]]++;
    }
    for (int64_t group = 0; group < num_groups; group++)
        if (sizes[group] != row_size / num_groups)
            throw NotImplemented("g_idx: got " + std::to_string(sizes[group]) + " features in group " +
                                 std::to_string(group) + ", the kernels take groups of one size, " +
                                 std::to_string(row_size / num_groups));
}

// q - zero_point must fit a signed byte, as it does for every zero point among the codes.
void require_zero_points(const int8_t* zero_point, int64_t count, int bits) {
    const int qmin = -(1 << (bits - 1)), qmax = -qmin - 1;
    if (bits == 8) return;
    for (int64_t i = 0; i < count; i++)
        if (qmax - zero_point[i] > 127 || qmin - zero_point[i] < -128)
            throw std::invalid_argument("weight_zero_point: got " + std::to_string(zero_point[i]) + ", expected " +
                                        std::to_string(qmax - 127) + " to " + std::to_string(qmin + 128));
}

int64_t group_size_of(const std::string& name, int64_t row_size) {
    const int64_t named_size = parse(name).group_size, group_size = named_size ? named_size : row_size;
    if (row_size % group_size)
        throw std::invalid_argument("shape: got K = " + std::to_string(row_size) + ", expected a multiple of " +
                                    std::to_string(group_size) + " for " + name);
    return group_size;
}

// [K] group of each feature; null if they follow each other.
const int32_t* groups_in(const Parts& parts, int64_t row_size, int64_t num_groups) {
    const auto found = parts.find("g_idx");
    if (found == parts.end()) return nullptr;
    const std::string expected = "int32 [" + std::to_string(row_size) + "]";
    require_vector(found->second, "g_idx", nb::dtype<int32_t>(), expected);
    if (static_cast<int64_t>(found->second.shape(0)) != row_size)
        throw std::invalid_argument("g_idx: got " + describe(found->second) + ", expected " + expected);
    const auto* group_of = static_cast<const int32_t*>(found->second.data());
    require_groups(group_of, row_size, num_groups);
    return group_of;
}

size_t packed_group_bytes(const std::string& name, int64_t num_rows, int64_t row_size) {
    return group_layout(*parse(name).format, num_rows, row_size, group_size_of(name, row_size)).nbytes();
}

std::shared_ptr<Weight> make_groups(const std::string& name, const Parts& parts, int64_t num_rows, int64_t row_size) {
    const GroupFormat* format = parse(name).format;
    const int64_t group_size = group_size_of(name, row_size);
    const int64_t num_groups = row_size / group_size, num_words = (row_size * format->bits + 31) / 32;
    const int32_t* group_of = groups_in(parts, row_size, num_groups);
    if (auto bytes = packed_part(parts, packed_group_bytes(name, num_rows, row_size)))
        return over_groups(*format, name, group_of, num_rows, row_size, group_size, std::move(*bytes));
    const Array& packed = part(parts, "weight_packed", name);
    const Array& scale = part(parts, "weight_scale", name);
    require_shape(packed, "weight_packed", nb::dtype<int32_t>(), "int32", num_rows, num_words);
    const nb::dlpack::dtype float16{static_cast<uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    require_shape(scale, "weight_scale", float16, "float16", num_rows, num_groups);
    GroupParts given{static_cast<const uint8_t*>(packed.data()), num_words * 4,
                     static_cast<const uint16_t*>(scale.data()), nullptr, nullptr};
    if (format->asymmetric()) {
        const Array& zero_point = part(parts, "weight_zero_point", name);
        require_shape(zero_point, "weight_zero_point", nb::dtype<int8_t>(), "int8", num_rows, num_groups);
        given.zero_point = static_cast<const int8_t*>(zero_point.data());
        require_zero_points(given.zero_point, num_rows * num_groups, format->bits);
    }
    given.group_of = group_of;
    nb::gil_scoped_release release;
    return pack_groups(*format, name, given, num_rows, row_size, group_size);
}

}  // namespace

const Maker group_maker{takes_groups, make_groups, packed_group_bytes};

}  // namespace qk::linear
