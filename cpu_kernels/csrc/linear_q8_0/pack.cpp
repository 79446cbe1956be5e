#include <cstring>

#include "half.h"
#include "linear_q8_0/linear_q8_0.h"
#include "thread_pool.h"

namespace qk::linear_q8_0 {
namespace {

// Flips the top bit of each of 4 bytes: int8 q becomes uint8 q + 128.
uint32_t add_128(uint32_t four_codes) { return four_codes ^ 0x80808080u; }

void pack_panel(const uint8_t* blocks, int64_t num_rows, int64_t num_blocks, uint8_t* codes, uint16_t* scales) {
    for (int64_t i_block = 0; i_block < num_blocks; i_block++) {
        for (int row = 0; row < panel_rows; row++) {
            const bool padding = row >= num_rows;
            const uint8_t* block = padding ? nullptr : blocks + (row * num_blocks + i_block) * block_bytes;
            uint16_t scale = 0;
            if (!padding) std::memcpy(&scale, block, 2);
            scales[i_block * panel_rows + row] = scale;
            for (int group = 0; group < block_size / 4; group++) {
                uint32_t four_codes = 0;
                if (!padding) std::memcpy(&four_codes, block + 2 + group * 4, 4);
                four_codes = add_128(four_codes);
                std::memcpy(codes + i_block * PackedWeight::block_code_bytes + group * PackedWeight::group_bytes +
                                row * 4,
                            &four_codes, 4);
            }
        }
    }
}

void unpack_row(const PackedWeight& weight, int64_t row, float* out) {
    const int64_t panel = row / panel_rows, lane = row % panel_rows;
    const uint8_t* codes = weight.codes(panel) + lane * 4;
    const uint16_t* scales = weight.scales(panel) + lane;
    for (int64_t i_block = 0; i_block < weight.num_blocks; i_block++) {
        const float scale = half_to_float(scales[i_block * panel_rows]);
        for (int group = 0; group < block_size / 4; group++, codes += PackedWeight::group_bytes)
            for (int k = 0; k < 4; k++) *out++ = scale * static_cast<float>(codes[k] - 128);
    }
}

}  // namespace

PackedWeight pack(const uint8_t* blocks, int64_t num_rows, int64_t num_blocks) {
    PackedWeight weight{num_rows, num_blocks, {}};
    weight.buffer = Buffer(weight.num_panels() * num_blocks * panel_rows * block_bytes);
    thread_pool()->run(weight.num_panels(), [&](int64_t panel) {
        const int64_t first_row = panel * panel_rows;
        pack_panel(blocks + first_row * num_blocks * block_bytes, num_rows - first_row, num_blocks,
                   weight.codes(panel), weight.scales(panel));
    });
    return weight;
}

void unpack_rows(const PackedWeight& weight, const int64_t* index, int64_t num_indices, float* out) {
    const int64_t row_size = weight.num_blocks * block_size;
    thread_pool()->run(num_indices, [&](int64_t i) { unpack_row(weight, index[i], out + i * row_size); });
}

}  // namespace qk::linear_q8_0
