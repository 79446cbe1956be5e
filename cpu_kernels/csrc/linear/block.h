// Weights whose codes share scales in blocks or groups: the contract of packing, unpacking and multiplying.
//
// K is walked in steps of 32, the activations that share a scale, and a step's codes are 8 groups of 4 k:
//
//     group (64 bytes)   | row 0: k k k k | row 1: k k k k | ... | row 15: k k k k |     one 512-bit register
//
// vpdpbusd multiplies a group with 4 activations, broadcast, and leaves 16 outputs in 16 lanes, so nothing is summed
// across lanes and a token more costs no further weight load. Codes of fewer than 8 bits are kept as planes of such
// groups, several codes per byte (byte j of a plane belongs to row j / 4 and to k = 4 g + j % 4 of each group g in it):
//
//     plane of 8 bits   8 x 64 bytes   vector g: group g
//     plane of 4 bits   4 x 64 bytes   vector v: group v in bits 0..3, group v + 4 in bits 4..7
//     plane of 2 bits   2 x 64 bytes   vector v: groups 4 v + i in bits 2 i, 2 i + 1
//     plane of 1 bit    1 x 64 bytes   group g in bit g
//
// A code of 3, 5 or 6 bits is a plane of 2 or 4 bits, which has its lowest ones, and then a plane of 1 or 2.
// Formats that are points of a lattice keep the steps that block_formats/lattice.h draws.
// A block begins with its 16 rows' scales, in the bits of the file, byte for byte: 16 rows x byte 0, 16 rows x
// byte 1 (float16 are 16 rows x 2 bytes), then come its steps. So it takes 16 times the bytes of the file's block.
// panel_layout.h has the place of each block of a matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "block_formats/layouts.h"
#include "dispatch.h"
#include "linear/grid.h"
#include "linear/input.h"
#include "linear/panel_layout.h"
#include "linear/read_ahead.h"
#include "linear/sums.h"
#include "linear/tile_rows.h"
#include "linear/weight.h"

namespace qk::linear {

inline constexpr int step_size = ActivationBlock::size;
inline constexpr int step_groups = 8;
inline constexpr int group_bytes = panel_rows * 4;
inline constexpr int step_bytes_per_bit = panel_rows * step_size / 8;  // of a panel's step, for each bit of a code

// Panels that a tile multiplies side by side, see tile/kernels.inl.
inline constexpr int tile_panels = 2;

// Some steps of a panel, unpacked.
struct Stretch {
    uint8_t* codes;  // [steps, 8, 16, 4]: a byte per code, with the instruction set's stretch_lift
    float* scale;  // [steps * scales_per_step, 16]; for spans [ceil(steps / span), 16]
    float* minimum;  // [steps * minima_per_step, 16]; zeros for span_zero, [ceil(steps / span), 16]
    int num_steps;
    int span;  // steps that share a scale, for spans
    const uint8_t* next = nullptr;  // packed bytes that are unpacked next, to be fetched while this one is multiplied
    int64_t next_bytes = 0;
};

// The sums of a tile, and their destination when it is complete.
struct Outputs {
    float* sums;  // [panels, num_tokens, 16]
    float* y;  // [num_tokens, y_stride], at the first panel's first row: takes the sums; null: they stay
    int64_t y_stride;
};

// out += x @ stretches^T; x at the first token's block of their first step, which is the same for 1 to tile_panels
// panels.
using Tile = Isa (*)(std::span<const Stretch> stretches, const std::byte* x, size_t token_bytes, int64_t num_tokens,
                     const Outputs& out);

// out.num_steps of a stretch
using Unpack = void (*)(const uint8_t* stretch, const BlockShape& shape, const Stretch& out);

// Fills a stretch in except for its codes.
using UnpackScales = Unpack;

// For 16 rows: a weight is scale * number + offset, rounded once. The number of a code is the code plus a constant of the
// format.
struct TileFactors { alignas(64) float scale[panel_rows], offset[panel_rows]; };

// to [16 pairs of k, 16 rows, 2] bfloat16: a step of a block as a tile
// factors   of the step, or of both its halves if they have scales or minima of their own
using ToTile = void (*)(const uint8_t* block, const BlockShape& shape, int step, const TileFactors* factors,
                        std::byte* to);

// The part of a format that multiply_bf16 needs.
struct TileKernels {
    UnpackScales scales;
    ToTile to_tile;
    float zero;  // the number of code 0
};

// The row of tile instructions has only `tiles`, and no other has them.
struct BlockKernels {
    // y [num_tokens, 16] += x @ stretch^T; x at the first token's block of its first step. num_tokens in
    // 1..direct_tokens.
    Isa (*direct)(const uint8_t* stretch, const BlockShape& shape, int num_steps, const std::byte* x,
                  size_t token_bytes, int num_tokens, float* y);
    Unpack unpack;
    Tile tile;
    const TileKernels* tiles = nullptr;
};

// A packed matrix.
struct PackedPanels {
    const uint8_t* bytes;
    const PanelLayout& layout;
    const TileKernels& kernels;
    Sums sums;
    int64_t num_rows;
};

// The tile of Path::int8x256 in place of a format's own one: its unpacked stretch becomes, in place, one of codes of 8
// bits with a scale for each row and 8 steps, which is multiplied as Sums::span.
struct ReroundKernels {
    void (*reround)(const Stretch& stretch, int bits);
    Tile tile;
};

inline constexpr int direct_tokens = 8;

struct CodeFormat {
    std::string name;
    std::string op;  // its name in the op table
    Sums sums;
    std::span<const Impl<BlockKernels>> table;
    int64_t most_direct_tokens;  // crossover: largest number for which the direct path is faster
};

// The K-quants, whose sub-blocks have scales and perhaps minima of few bits.
struct Rerounding {
    std::string format;
    int bits;
    std::span<const Impl<ReroundKernels>> table;
};

// That of a format; null for those without.
const Rerounding* rerounding_of(std::string_view format);

// A format of GGUF's.
struct BlockFormat : CodeFormat {
    int block_size;
    int block_bytes;  // of the file
    int step_bytes;  // of a panel
    std::span<const layout::Field> fields;
    void (*stored_codes)(const uint8_t* block, uint8_t* q);  // q [block_size], unsigned; or null, and:
    void (*pack_steps)(const uint8_t* block, int row, uint8_t* to);  // to all steps of the block in a panel
    Grid* grid;  // of a lattice; else null
};

// Integers with a scale, and perhaps a zero point, for each group; the group's size is the weight's own.
struct GroupFormat : CodeFormat {
    int bits;
    int header_bytes;  // a row's scale and zero point
    bool asymmetric() const { return header_bytes == 3; }
};

// A trellis code with a scale for each row, see linear_trellis/linear_trellis.h.
struct TrellisFormat : CodeFormat { int bits; };

std::span<const BlockFormat> block_formats();
std::span<const GroupFormat> group_formats();
std::span<const TrellisFormat> trellis_formats();

// name, bits, bytes of a row's scale and zero point, sums, most_direct_tokens
#define QK_GROUP_FORMATS(X)    \
    X(w2, 2, 2, span, 32)      \
    X(w3, 3, 2, span, 8)       \
    X(w4, 4, 2, span, 24)      \
    X(w8, 8, 2, span, 4)       \
    X(w2_asym, 2, 3, span, 32) \
    X(w3_asym, 3, 3, span, 16) \
    X(w4_asym, 4, 3, span, 24) \
    X(w8_asym, 8, 3, span_zero, 4)

#define QK_REROUNDED_SUMS(X) X(step_minimum) X(step_half_minima) X(half)
#define QK_SUMS(X) X(step) X(step_minimum) X(step_half_minima) X(half) X(span) X(span_zero)

// AVX2 has a tile for each width of codes that formats have, see tile_bits.
#define QK_WIDTHS(X)       \
    X(step, 4)             \
    X(step, 5)             \
    X(step, 7)             \
    X(step, 8)             \
    X(step_minimum, 4)     \
    X(step_minimum, 5)     \
    X(step_half_minima, 6) \
    X(half, 4)             \
    X(half, 6)             \
    X(half, 7)             \
    X(span, 4)             \
    X(span, 8)             \
    X(span_zero, 8)

#define QK_DECLARE_FORMAT(name, ...)                                                                      \
    Isa direct_##name(const uint8_t* stretch, const BlockShape& shape, int num_steps, const std::byte* x, \
                      size_t token_bytes, int num_tokens, float* y);                                      \
    void unpack_##name(const uint8_t* stretch, const BlockShape& shape, const Stretch& out);
#define QK_DECLARE_TILE(sums)                                                                                       \
    Isa tile_##sums(std::span<const Stretch> stretches, const std::byte* x, size_t token_bytes, int64_t num_tokens, \
                    const Outputs& out);
#define QK_DECLARE_WIDTH(sums, bits) QK_DECLARE_TILE(sums##_##bits)
#define QK_DECLARE_ISA(isa, tiles)      \
    namespace isa {                     \
    QK_BLOCK_FORMATS(QK_DECLARE_FORMAT) \
    QK_GROUP_FORMATS(QK_DECLARE_FORMAT) \
    tiles                               \
    }
QK_DECLARE_ISA(scalar, QK_SUMS(QK_DECLARE_TILE))
QK_DECLARE_ISA(avx2, QK_WIDTHS(QK_DECLARE_WIDTH))
QK_DECLARE_ISA(avx_vnni, QK_SUMS(QK_DECLARE_TILE))
QK_DECLARE_ISA(avx512, QK_SUMS(QK_DECLARE_TILE))
QK_DECLARE_ISA(avx512_vnni, QK_SUMS(QK_DECLARE_TILE))
namespace amx {
#define QK_DECLARE_TILES(name, ...) extern const TileKernels tiles_##name;
QK_BLOCK_FORMATS(QK_DECLARE_TILES)
QK_GROUP_FORMATS(QK_DECLARE_TILES)
#undef QK_DECLARE_TILES
// A tile of a step's codes [8, 16, 4], which have a lift of 128, and the number of code 0 there.
void tile_of_codes(const uint8_t* codes, const TileFactors& factors, std::byte* to);
inline constexpr float zero_of_codes = 256 + 128;
// y [num_tokens, y_stride] = x @ weight^T (+ addends) for the rows of panels [begin, end), both sides rounded to
// bfloat16; x in tiles (tile_rows.h).
Isa multiply_bf16(const PackedPanels& weight, int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride);
Isa multiply_and_add_bf16(const PackedPanels& weight, int64_t begin, int64_t end, const Input& x, float* y,
                          int64_t y_stride, const Addends& addends);
// silu(x @ gate^T) * (x @ up^T), rounded to bfloat16, as columns of `rows`; the weights have one format and shape.
Isa multiply_gated(const PackedPanels& gate, const PackedPanels& up, int64_t begin, int64_t end, const Input& x,
                   const Place& to, const TileRows& rows);
}  // namespace amx
#define QK_DECLARE_REROUND(sums) void reround_##sums(const Stretch& stretch, int bits);
namespace scalar {
QK_REROUNDED_SUMS(QK_DECLARE_REROUND)
}
namespace avx2 {
QK_REROUNDED_SUMS(QK_DECLARE_REROUND)
}
namespace avx_vnni {
QK_REROUNDED_SUMS(QK_DECLARE_REROUND)
}
namespace avx512 {
QK_REROUNDED_SUMS(QK_DECLARE_REROUND)
}
#undef QK_DECLARE_REROUND
#undef QK_DECLARE_FORMAT
#undef QK_DECLARE_TILE
#undef QK_DECLARE_WIDTH
#undef QK_DECLARE_ISA

}  // namespace qk::linear
