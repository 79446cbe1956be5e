#include <algorithm>
#include <cstring>

#include "linear/block_weight.h"
#include "thread_pool.h"

namespace qk::linear {
namespace {

constexpr int largest_block = 256;

uint32_t four_bytes(const uint8_t* from) {
    uint32_t four;
    std::memcpy(&four, from, 4);
    return four;
}

// Codes of a row and step, four k of a group at a time, into the planes of `bits` bits at `to`.
void pack_plane(const uint8_t* q, int shift, int bits, int row, uint8_t* to) {
    const uint32_t mask = ((1u << bits) - 1) * 0x01010101u;
    for (int vector = 0; vector < bits; vector++) {
        uint32_t packed = 0;
        for (int i = 0; i < 8 / bits; i++) {
            const int group = bits == 4 ? vector + 4 * i : vector * (8 / bits) + i;
            packed |= (four_bytes(q + group * 4) >> shift & mask) << (i * bits);
        }
        std::memcpy(to + vector * group_bytes + row * 4, &packed, 4);
    }
}

}  // namespace

void pack_codes(const uint8_t* q, int bits, int row, uint8_t* to) {
    const int low = bits == 8 ? 8 : bits & 4 ? 4 : 2;
    pack_plane(q, 0, low, row, to);
    if (bits > low) pack_plane(q, low, bits - low, row, to + low * step_bytes_per_bit);
}

namespace {

void pack_block(const BlockFormat& format, const uint8_t* block, int row, uint8_t* to) {
    for (const layout::Field& field : format.fields) {
        for (int i = 0; i < field.size; i += field.element, to += panel_rows * field.element)
            std::memcpy(to + row * field.element, block + field.first + i, field.element);
    }
    if (format.pack_steps) return format.pack_steps(block, row, to);
    uint8_t q[largest_block];
    format.stored_codes(block, q);
    for (int k = 0; k < format.block_size; k += step_size, to += format.step_bytes)
        pack_codes(q + k, format.step_bytes / step_bytes_per_bit, row, to);
}

PanelLayout layout_of(const BlockFormat& format, int64_t num_rows, int64_t row_size) {
    const int block_steps = format.block_size / step_size;
    const int header_bytes = format.block_bytes * panel_rows - block_steps * format.step_bytes;
    return {
        (num_rows + panel_rows - 1) / panel_rows, row_size / step_size, {block_steps, header_bytes, format.step_bytes}};
}

}  // namespace

std::shared_ptr<Weight> over_blocks(const BlockFormat& format, int64_t num_rows, int64_t row_size, Buffer packed) {
    return std::make_shared<BlockWeight>(format, format.name, num_rows, row_size, layout_of(format, num_rows, row_size),
                                         std::move(packed), BlockInput(row_size));
}

std::shared_ptr<Weight> pack_blocks(const BlockFormat& format, const uint8_t* blocks, int64_t num_rows,
                                    int64_t row_size) {
    const int64_t num_blocks = row_size / format.block_size, row_bytes = num_blocks * format.block_bytes;
    const PanelLayout layout = layout_of(format, num_rows, row_size);
    const int block_steps = layout.block().steps;
    Buffer bytes = Buffer::long_lived(layout.nbytes());
    thread_pool()->run(layout.num_panels(), [&](int64_t panel) {
        const int64_t first = panel * panel_rows;
        const auto count = static_cast<int>(std::min<int64_t>(panel_rows, num_rows - first));
        if (count < panel_rows) layout.clear(panel, bytes.data());  // rows that are not there have scale 0
        for (int64_t b = 0; b < num_blocks; b++) {
            uint8_t* to = bytes.data() + layout.offset(panel, b * block_steps);
            for (int row = 0; row < count; row++)
                pack_block(format, blocks + (first + row) * row_bytes + b * format.block_bytes, row, to);
        }
    });
    return over_blocks(format, num_rows, row_size, std::move(bytes));
}

}  // namespace qk::linear
