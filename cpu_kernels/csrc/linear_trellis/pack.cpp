#include <cstring>

#include "linear_trellis/weight.h"
#include "thread_pool.h"

namespace qk::linear_trellis {

linear::PanelLayout layout_of(int bits, int state_bits, int64_t num_rows, int64_t row_size) {
    const int64_t num_steps = (row_size + linear::step_size - 1) / linear::step_size;
    return {num_rows / side, num_steps, {linear::stretch_steps, 0, bits * linear::step_bytes_per_bit, state_bits}};
}

size_t packed_bytes(int bits, int64_t num_rows, int64_t row_size) {
    const auto panels = layout_of(bits, trellis::most_state_bits, num_rows, row_size);
    return static_cast<size_t>(panels.nbytes()) + static_cast<size_t>(num_rows) * sizeof(float);
}

// The tile that a last step of 16 inputs lacks is zeros, and meets activations of 0.
Buffer pack(const linear::PanelLayout& layout, int bits, const uint8_t* words, const float* scale, int64_t row_size) {
    const int64_t num_rows = layout.num_panels() * side, num_tiles = row_size / side;
    Buffer packed = Buffer::long_lived(packed_bytes(bits, num_rows, row_size));
    thread_pool()->run(layout.num_panels(), [&](int64_t panel) {
        layout.clear(panel, packed.data());
        for (int64_t i = 0; i < num_tiles; i++) {
            uint8_t* to = packed.data() + layout.offset(panel, i / 2);
            for (int row = 0; row < side; row++)
                for (int j = 0; j < bits; j++) {
                    const Place place = place_of(bits, static_cast<int>(i % 2), j);
                    std::memcpy(to + place.vector * vector_bytes + row * 4 + (place.is_upper ? 2 : 0),
                                words + (((panel * side + row) * num_tiles + i) * bits + j) * 2, 2);
                }
        }
    });
    std::memcpy(packed.data() + layout.nbytes(), scale, static_cast<size_t>(num_rows) * sizeof(float));
    return packed;
}

}  // namespace qk::linear_trellis
