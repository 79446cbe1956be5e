#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "linear/block_weight.h"
#include "thread_pool.h"

namespace qk::linear {
namespace {

// Code k of a row's stream of bits.
uint8_t code_at(const uint8_t* stream, int64_t row_bytes, int bits, int64_t k) {
    const int64_t first = k * bits / 8;
    const unsigned next = first + 1 < row_bytes ? stream[first + 1] : 0;
    return (stream[first] | next << 8) >> (k * bits % 8) & ((1 << bits) - 1);
}

// Features sorted by their group, those of one group as they come; empty if they are sorted, or group_of is null.
std::vector<int32_t> order_of(const int32_t* group_of, int64_t row_size) {
    if (!group_of) return {};
    std::vector<int32_t> order(row_size);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return group_of[a] < group_of[b]; });
    if (std::is_sorted(order.begin(), order.end())) order.clear();
    return order;
}

}  // namespace

PanelLayout group_layout(const GroupFormat& format, int64_t num_rows, int64_t row_size, int64_t group_size) {
    const int64_t num_steps = (row_size + step_size - 1) / step_size;
    int span = stretch_steps;
    if (group_size != row_size)
        while (group_size / step_size % span) span--;  // the longest that divides a group and fits a stretch
    return {(num_rows + panel_rows - 1) / panel_rows,
            num_steps,
            {span, panel_rows * format.header_bytes, format.bits * step_bytes_per_bit}};
}

std::shared_ptr<Weight> over_groups(const GroupFormat& format, std::string name, const int32_t* group_of,
                                    int64_t num_rows, int64_t row_size, int64_t group_size, Buffer packed) {
    const PanelLayout layout = group_layout(format, num_rows, row_size, group_size);
    return std::make_shared<BlockWeight>(format, std::move(name), num_rows, row_size, layout, std::move(packed),
                                         BlockInput(row_size, order_of(group_of, row_size)));
}

std::shared_ptr<Weight> pack_groups(const GroupFormat& format, std::string name, const GroupParts& parts,
                                    int64_t num_rows, int64_t row_size, int64_t group_size) {
    const PanelLayout layout = group_layout(format, num_rows, row_size, group_size);
    const BlockShape& block_shape = layout.block();
    const int64_t num_groups = row_size / group_size;
    const std::vector<int32_t> order = order_of(parts.group_of, row_size);
    Buffer bytes = Buffer::long_lived(layout.nbytes());

    const auto pack_row = [&](int64_t row) {
        const int lane = static_cast<int>(row % panel_rows);
        std::vector<uint8_t> q(layout.num_steps() * step_size);  // codes beyond the row meet activations of 0
        for (int64_t k = 0; k < row_size; k++)
            q[k] = code_at(parts.codes + row * parts.row_bytes, parts.row_bytes, format.bits,
                           order.empty() ? k : order[k]);
        for (int64_t step = 0; step < layout.num_steps(); step++) {
            const int64_t in_block = step % block_shape.steps;
            uint8_t* block = bytes.data() + layout.offset(row / panel_rows, step - in_block);
            const int64_t group = row * num_groups + step * step_size / group_size;
            if (in_block == 0) {
                std::memcpy(block + lane * 2, parts.scale + group, 2);
                if (format.asymmetric()) block[panel_rows * 2 + lane] = static_cast<uint8_t>(parts.zero_point[group]);
            }
            pack_codes(q.data() + step * step_size, format.bits, lane, block + block_shape.bytes(in_block));
        }
    };
    thread_pool()->run(layout.num_panels(), [&](int64_t panel) {
        const int64_t first = panel * panel_rows, last = std::min(first + panel_rows, num_rows);
        if (last - first < panel_rows) layout.clear(panel, bytes.data());  // rows that are not there have scale 0
        for (int64_t row = first; row < last; row++) pack_row(row);
    });
    return over_groups(format, std::move(name), parts.group_of, num_rows, row_size, group_size, std::move(bytes));
}

}  // namespace qk::linear
