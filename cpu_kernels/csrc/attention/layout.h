// How keys and values lie in memory, whatever their format: blocks of 16 tokens of one kv head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qk::attention {

// Tokens side by side in a block: the 32-bit lanes of a 512-bit register.
inline constexpr int block_tokens = 16;
inline constexpr int lane_bytes = 4;

// e4m3, e5m2  float8 nearest as by torch's casts, but at most the largest finite code; NaN stays; times a scale
// int8, int4  scale * code + minimum, float16 both, codes unsigned; int4 for each 32 channels, int8 for all of a head
enum class Format : uint8_t { f32, f16, bf16, e4m3, e5m2, int8, int4 };

inline constexpr int num_formats = 7;
inline constexpr const char* format_names[num_formats] = {"f32", "f16", "bf16", "e4m3", "e5m2", "int8", "int4"};

// Throws std::invalid_argument that lists what there is.
Format parse_format(std::string_view name);

constexpr bool is_float8(Format format) { return format == Format::e4m3 || format == Format::e5m2; }
constexpr bool is_integer(Format format) { return format == Format::int8 || format == Format::int4; }
constexpr bool is_byte(Format format) { return is_float8(format) || format == Format::int8; }

// Where the scales of float8 come from.
enum class Scales : uint8_t { given, per_head, per_tensor };

// Channels of a head that a kernel takes at a time; a head is a multiple. int4 has a scale for each 32.
inline constexpr int channel_step = 16;
inline constexpr int int4_group = 32;
inline constexpr int64_t max_head = 1024;

// int8: 255 * 32767 * 256 is the largest sum of products below 2^31.
inline constexpr int64_t max_integer_head = 256;
inline constexpr int64_t max_groups = max_integer_head / int4_group;

// Codes of a block, D channels of 16 tokens. A register holds 16 tokens of keys, or 16 channels of values, so that no
// sum runs across its lanes.
//
//     keys     f32, f16, bf16       [D][16]
//              e4m3, e5m2, int8     [D / 4][16] lanes of 4 channels
//              int4                 [D / 8][16] lanes of 8 channels
//     values   f32, f16, bf16       [16][D]
//              e4m3, e5m2, int8     [4][D] lanes of 4 tokens
//              int4                 [2][D] lanes of 8 tokens
//
// A lane has 4 elements of a byte, or 8 of a nibble. A multiply-add of pairs wants two that follow each other as the
// 16-bit halves of the lane. Those of integers lie in bytes of the same parity, where a mask, or a shift by 8, leaves
// them so. Those of float8 lie four lanes at a time, so that it takes a byte each of two tables, the lower and the
// upper one of a bfloat16, and instructions that interleave the first 8 of 16 bytes, or the last.
//
//     byte      0     1     2     3
//     int8      e0    e2    e1    e3                                                    of a lane
//     int4      e0    e2    e1    e3        low nibbles; high ones: e4, e6, e5, e7
//     float8    e0 e1 of lanes 0, 1, 2, 3, then e2 e3 of lanes 0, 1, 2, 3               16 bytes of four lanes
//
// Scales of a block, in memory of their own (those per tensor are the same for all heads, and stored once):
//
//     float8 (not given)      float32 [16]
//     int8, int4              float16 [groups][2][16]: the scales of a group, then its minima
struct Layout {
    Format format;
    Scales scales;  // of float8
    int64_t head_dim;

    int64_t groups() const { return format == Format::int4 ? head_dim / int4_group : is_integer(format) ? 1 : 0; }
    int64_t row_bytes() const;     // codes of a token of one head
    int64_t scale_bytes() const;   // scales of a block
    // One or more scales for each token, as opposed to one for all or none.
    bool has_token_scales() const { return scale_bytes() > 0; }
    int64_t block_bytes() const { return block_tokens * row_bytes(); }
};

// Whether heads of this size can be held, and which can.
bool holds(Format format, int64_t head_dim);
std::string held_heads(Format format);

// Elements in a lane of four bytes: channels of keys, tokens of values. 1 where codes are wider than a byte.
constexpr int lane_elements(Format format) { return format == Format::int4 ? 8 : is_byte(format) ? 4 : 1; }
// The byte that holds an element of a lane; those from 4 on are in its high nibble.
constexpr int64_t element_byte(Format format, int64_t lane, int64_t element) {
    if (is_float8(format)) return lane / 4 * 16 + element / 2 * 8 + lane % 4 * 2 + element % 2;
    return lane * lane_bytes + element % 2 * 2 + element / 2 % 2;
}

struct Block {
    const std::byte* codes;
    const std::byte* scales;
};

}  // namespace qk::attention
