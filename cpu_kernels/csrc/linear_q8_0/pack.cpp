#include <cstring>

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

}  // namespace qk::linear_q8_0
