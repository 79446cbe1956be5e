// The places of a matrix's blocks.
//
// K is cut into stretches of whole blocks, and panels_together neighbouring panels are stored stretch by stretch:
//
//     | panel 0, stretch 0 | panel 1, stretch 0 | 2 | 3 | panel 0, stretch 1 | ... | panel 4, stretch 0 | ...
//
// So a product of few tokens reads memory from end to end, and the activations of a stretch, 1 KiB, meet 4 panels while
// they are in the L1: a panel at a time they would have to come from the L2 again for each 16 rows, between loads of
// weights that the processor's prefetching follows best if nothing else misses the L1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace qk::linear {

// With 4 of them 0.96 of a plain loop's bandwidth at K = 8192, with 2 0.95, with 1 0.87 (2 threads of Zen 4). A product
// is handed out by as many, so a matrix of 256 rows still has 4 parts.
inline constexpr int panels_together = 4;

// Steps of a stretch at most, and unpacked at a time, see Stretch. 16: of each of two panels 8 KiB of codes, 1 to 2 KiB
// of scales and up to 2 KiB of minima, next to 6 tokens of 16 activation blocks, 6 KiB: at most 30 of an L1's 32 KiB.
inline constexpr int stretch_steps = 16;

// The steps of a block, packed.
struct BlockShape {
    int steps;  // of all blocks of a panel but perhaps the last; also the span, for spans
    int header_bytes;  // scales and the like of 16 rows
    int step_bytes;
    int state_bits = 0;  // of a trellis code: the last bits of a state decide its value

    int64_t bytes(int64_t num_steps) const { return header_bytes + num_steps * step_bytes; }
    bool operator==(const BlockShape&) const = default;
};

class PanelLayout {
public:
    PanelLayout(int64_t num_panels, int64_t num_steps, BlockShape block)
        : num_panels_(num_panels),
          num_steps_(num_steps),
          block_(block),
          steps_a_stretch_(stretch_steps / block.steps * block.steps) {}

    const BlockShape& block() const { return block_; }
    int64_t num_panels() const { return num_panels_; }
    int64_t num_steps() const { return num_steps_; }

    // Steps of the stretch that begins with `step`.
    int stretch_at(int64_t step) const {
        return static_cast<int>(std::min<int64_t>(steps_a_stretch_, num_steps_ - step));
    }
    int64_t stretch_bytes(int64_t step) const { return bytes_of(stretch_at(step)); }

    // Steps from `step` to the end of its stretch.
    int steps_left(int64_t step) const {
        return stretch_at(step - step % steps_a_stretch_) - static_cast<int>(step % steps_a_stretch_);
    }

    int64_t panel_bytes() const { return bytes_of(num_steps_); }
    int64_t nbytes() const { return num_panels_ * panel_bytes(); }

    // Place of the block that begins with `step`.
    int64_t offset(int64_t panel, int64_t step) const {
        const int64_t first = panel / panels_together * panels_together;
        const int64_t together = std::min<int64_t>(panels_together, num_panels_ - first);
        const int64_t in_stretch = step % steps_a_stretch_, begin = step - in_stretch;
        return first * panel_bytes() + together * bytes_of(begin) + (panel - first) * stretch_bytes(begin) +
               bytes_of(in_stretch);
    }

    void clear(int64_t panel, uint8_t* bytes) const {
        for (int64_t step = 0; step < num_steps_; step += stretch_at(step))
            std::memset(bytes + offset(panel, step), 0, stretch_bytes(step));
    }

private:
    // Bytes of `steps` steps from a block's first one on.
    int64_t bytes_of(int64_t steps) const {
        const int64_t rest = steps % block_.steps;
        return steps / block_.steps * block_.bytes(block_.steps) + (rest ? block_.bytes(rest) : 0);
    }

    int64_t num_panels_, num_steps_;
    BlockShape block_;
    int steps_a_stretch_;
};

}  // namespace qk::linear
