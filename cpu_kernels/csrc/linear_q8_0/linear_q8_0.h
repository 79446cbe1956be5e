// y [M, N] = x [M, K] @ weight [N, K]^T, weight in GGUF Q8_0, x rounded to int8 per block of 32 on the way.
// The arithmetic is defined by linear_q8_0_ref in cpu_kernels/linear_q8_0.py.
#pragma once

#include <cstdint>
#include <span>

#include "buffer.h"
#include "dispatch.h"

namespace qk::linear_q8_0 {

inline constexpr int block_size = 32;   // weights, or activations, that share a scale
inline constexpr int block_bytes = 34;  // GGUF: f16 scale, then 32 int8
inline constexpr int panel_rows = 16;   // output rows side by side: the int32 lanes of a 512-bit register

// Q8_0 repacked once, at load, so that one layout serves one token and many:
//
//     panel (16 output rows)  = blocks of 32 k, one after the other
//     block (512 bytes)       = 8 groups of 4 k
//     group (64 bytes)        | row 0: k k k k | row 1: k k k k | ... | row 15: k k k k |
//     scales (32 bytes)       | row 0: f16     | row 1: f16     | ... | row 15: f16     |   one line a block
//
// A group is one 512-bit register: vpdpbusd multiplies it with 4 activations, broadcast, and leaves 16 outputs
// in 16 lanes, so nothing is summed across lanes and a token more costs no further weight load. Codes and scales
// are two streams, so that each group is one cache line. 544 bytes for 16 blocks are GGUF's own 34 a block.
//
// A code is stored as q + 128, as vpdpbusd wants one operand unsigned. What that adds to a dot product,
// 128 * sum(x), depends on the activations alone: it is subtracted by starting the accumulator at
// ActivationBlock::offset. (Activations + 128 would need the sums of the weights, another stream from memory.)
//
// Rows are padded to whole panels with scale 0.
struct PackedWeight {
    static constexpr int group_bytes = panel_rows * 4;
    static constexpr int block_code_bytes = panel_rows * block_size;
    static_assert(block_code_bytes + panel_rows * 2 == panel_rows * block_bytes);

    int64_t num_rows = 0;    // N
    int64_t num_blocks = 0;  // K / 32
    Buffer buffer;           // codes uint8 [panels, K / 32, 8, 16, 4], then scales f16 [panels, K / 32, 16]

    int64_t num_panels() const { return (num_rows + panel_rows - 1) / panel_rows; }
    int64_t code_bytes() const { return num_panels() * num_blocks * block_code_bytes; }
    uint8_t* codes(int64_t panel) { return buffer.data() + panel * num_blocks * block_code_bytes; }
    uint16_t* scales(int64_t panel) {
        return reinterpret_cast<uint16_t*>(buffer.data() + code_bytes()) + panel * num_blocks * panel_rows;
    }
    const uint8_t* codes(int64_t panel) const { return const_cast<PackedWeight*>(this)->codes(panel); }
    const uint16_t* scales(int64_t panel) const { return const_cast<PackedWeight*>(this)->scales(panel); }
};

// blocks  [N, K / 32 * 34] uint8, GGUF Q8_0
PackedWeight pack(const uint8_t* blocks, int64_t num_rows, int64_t num_blocks);

// Row index[i] as float32 in out[i]: a tied embedding is looked up in the head's own weight.
// index  [n] int64 in [0, N); out [n, K] float32
void unpack_rows(const PackedWeight& weight, const int64_t* index, int64_t num_indices, float* out);

// 32 activations: x ~= scale * codes, codes in [-127, 127]. scale is NaN where one of them is NaN or infinite.
struct ActivationBlock {
    int8_t codes[block_size];
    float scale;
    int32_t offset;  // -128 * sum(codes)
};
static_assert(sizeof(ActivationBlock) == 40);

// Below this the reciprocal of the scale would overflow, and the block counts as zeros.
inline constexpr float smallest_absmax = 0x1p-119f;
inline constexpr uint32_t infinity_bits = 0x7f800000;  // absmax as bits at or above it: infinite or NaN

// x  [M, K / 32] blocks; y [M, y_stride] float32, of which the N columns of the panels are written
struct Activations {
    const ActivationBlock* x;
    int64_t num_tokens;
    float* y;
    int64_t y_stride;
};

struct Kernels {
    void (*quantize_row)(const float* x, int64_t num_blocks, ActivationBlock* out);
    // Output rows of panels [begin, end) for all tokens. Returns who it is: the proof of what ran.
    Isa (*multiply)(const PackedWeight& weight, int64_t begin, int64_t end, const Activations& activations);
};

std::span<const Impl<Kernels>> table();

// x [M, K], y [M, N] float32, both contiguous. Returns what ran.
Isa linear(const PackedWeight& weight, const float* x, int64_t num_tokens, float* y, const Impl<Kernels>& impl);

#define QK_DECLARE(isa)                                                             \
    namespace isa {                                                                 \
    void quantize_row(const float* x, int64_t num_blocks, ActivationBlock* out);    \
    Isa multiply(const PackedWeight&, int64_t begin, int64_t end, const Activations&); \
    }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx512_vnni)
#undef QK_DECLARE

}  // namespace qk::linear_q8_0
