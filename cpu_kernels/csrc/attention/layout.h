// How keys and values lie in memory, whatever their format: blocks of 16 tokens of one kv head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qk::attention {

// Tokens side by side in a block: the 32-bit lanes of a 512-bit register.
inline constexpr int block_tokens = 16;

// e4m3, e5m2  float8 as torch's casts have it, times a scale
// int8, int4  scale * code + minimum, float16 both, codes unsigned; int4 for each 32 channels, int8 for all of a head
enum class Format : uint8_t { f32, f16, bf16, e4m3, e5m2, int8, int4 };

inline constexpr int num_formats = 7;
inline constexpr const char* format_names[num_formats] = {"f32", "f16", "bf16", "e4m3", "e5m2", "int8", "int4"};

// Throws std::invalid_argument that lists what there is.
Format parse_format(std::string_view name);

constexpr bool is_float8(Format format) { return format == Format::e4m3 || format == Format::e5m2; }
constexpr bool is_integer(Format format) { return format == Format::int8 || format == Format::int4; }

// Where the scales of float8 come from.
enum class Scales : uint8_t { given, per_head, per_tensor };

// Channels of a head that a kernel takes at a time; a head is a multiple. int4 has a scale for each 32.
inline constexpr int channel_step = 16;
inline constexpr int int4_group = 32;
inline constexpr int64_t max_head = 1024;

// int8: 255 * 32767 * 256 is the largest sum of products below 2^31.
inline constexpr int64_t max_integer_head = 256;
inline constexpr int64_t max_groups = max_integer_head / int4_group;

// Codes of a block, D channels of 16 tokens:
//
//     keys     f32 .. e5m2    [D][16]                 a register holds 16 tokens, so that no sum runs across lanes
//              int8           [D / 2][16][2]          two channels of a token are one lane of a multiply-add of pairs
//              int4           [D / 4][16][2] bytes    byte j of quad i: channel 4 i + j | channel 4 i + 2 + j << 4
//     values   f32 .. int8    [16][D]                 a register holds 16 channels of a token
//              int4           [16][D / 2] bytes       byte 16 g + j: channel 32 g + j | channel 32 g + 16 + j << 4
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
    // Codes are read as floats 1 / code_unit^2 times what they mean. Half of that is made up for in what they are
    // multiplied with, half in the sum, so that neither leaves the range of float32.
    float code_unit() const { return format == Format::e4m3 ? 0x1p60f : 1.0f; }
    int64_t block_bytes() const { return block_tokens * row_bytes(); }
};

// Whether heads of this size can be held, and which can.
bool holds(Format format, int64_t head_dim);
std::string held_heads(Format format);

struct Block {
    const std::byte* codes;
    const std::byte* scales;
};

}  // namespace qk::attention
