// Layout of keys and values in memory, whatever their format: blocks of 16 tokens of one kv head.
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
// kivi4       values as int4, keys with a scale and a minimum for each channel of 32 tokens; recent tokens are f16
// kivi2       likewise with codes of 2 bits
enum class Format : uint8_t { f32, f16, bf16, e4m3, e5m2, int8, int4, kivi4, kivi2 };

inline constexpr int num_formats = 9;
inline constexpr const char* format_names[num_formats] = {"f32",  "f16",  "bf16",  "e4m3", "e5m2",
                                                          "int8", "int4", "kivi4", "kivi2"};

// Throws std::invalid_argument that lists the formats.
Format parse_format(std::string_view name);

constexpr bool is_float8(Format format) { return format == Format::e4m3 || format == Format::e5m2; }
constexpr bool is_kivi(Format format) { return format == Format::kivi4 || format == Format::kivi2; }
constexpr bool is_integer(Format format) { return format == Format::int8 || format == Format::int4 || is_kivi(format); }
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

// kivi encodes a group of tokens when residual_tokens follow it. Until then a ring of float16 holds them.
inline constexpr int64_t group_tokens = 32;
inline constexpr int64_t residual_tokens = 128;
inline constexpr int64_t ring_tokens = residual_tokens + group_tokens;
static_assert(group_tokens % block_tokens == 0 && ring_tokens % block_tokens == 0);

// Codes of a block, D channels of 16 tokens. A register holds 16 tokens of keys, or 16 channels of values, so that no
// sum runs across its lanes.
//
//     keys     f32, f16, bf16       [D][16]
//              e4m3, e5m2, int8     [D / 4][16] lanes of 4 channels
//              int4, kivi4          [D / 8][16] lanes of 8 channels
//              kivi2                [D / 16][16] lanes of 16 channels
//     values   f32, f16, bf16       [16][D]
//              e4m3, e5m2, int8     [4][D] lanes of 4 tokens
//              int4, kivi4          [2][D] lanes of 8 tokens
//              kivi2                [D] lanes of 16 tokens
//
// A lane has 4 elements of a byte, 8 of a nibble, or 16 of 2 bits. A multiply-add of pairs wants two that follow each
// other as the 16-bit halves of the lane. Those of integers are in bytes of the same parity, where a mask, or a shift
// by 8, leaves them so. Those of float8 are four lanes at a time, so that it takes a byte each of two tables, the lower
// and the upper one of a bfloat16, and instructions that interleave the first 8 of 16 bytes, or the last.
//
//     byte      0     1     2     3
//     int8      e0    e2    e1    e3                                                    of a lane
//     int4      e0    e2    e1    e3        low nibbles; high ones: e4, e6, e5, e7
//     kivi2     e0    e8    e1    e9        lowest bits; then e2, e10, e3, e11; e4, ...; e6, ...
//     float8    e0 e1 of lanes 0, 1, 2, 3, then e2 e3 of lanes 0, 1, 2, 3               16 bytes of four lanes
//
// Scales of a block, in memory of their own (those per tensor are the same for all heads, and stored once):
//
//     float8 (not given)      float32 [16]
//     int8, int4, values      float16 [groups][2][16]: the scales of a group, then its minima
//     keys of kivi            float16 [D]: the scales of 32 tokens in their first block, their minima in their second
struct Layout {
    Format format;
    Scales scales;  // of float8
    int64_t head_dim;

    int64_t groups() const { return format == Format::int8 ? 1 : is_integer(format) ? head_dim / int4_group : 0; }
    int64_t row_bytes() const;     // codes of a token of one head
    int64_t scale_bytes() const;   // scales of a block
    // One or more scales for each token, as opposed to one for all or none.
    bool has_token_scales() const { return scale_bytes() > 0; }
    int64_t block_bytes() const { return block_tokens * row_bytes(); }
    bool has_residual() const { return is_kivi(format); }
    // Tokens that blocks hold if a sequence has `tokens`; those after them are in the ring.
    int64_t num_encoded(int64_t tokens) const {
        if (!has_residual()) return tokens;
        return tokens < ring_tokens ? 0 : (tokens - residual_tokens) / group_tokens * group_tokens;
    }
};

// Whether heads of this size can be held, and which can.
bool holds(Format format, int64_t head_dim);
std::string held_heads(Format format);

// Elements in a lane of four bytes: channels of keys, tokens of values. 1 where codes are wider than a byte.
constexpr int lane_elements(Format format) {
    if (format == Format::kivi2) return 16;
    if (format == Format::int4 || format == Format::kivi4) return 8;
    return is_byte(format) ? 4 : 1;
}
// Bits of a code of which several are in a lane.
constexpr int element_bits(Format format) { return 8 * lane_bytes / lane_elements(format); }
// The byte that holds an element of a lane, and the bit of that byte in which it begins.
constexpr int64_t element_byte(Format format, int64_t lane, int64_t element) {
    if (is_float8(format)) return lane / 4 * 16 + element / 2 * 8 + lane % 4 * 2 + element % 2;
    if (format == Format::kivi2) return lane * lane_bytes + element % 2 * 2 + element / 8;
    return lane * lane_bytes + element % 2 * 2 + element / 2 % 2;
}
constexpr int element_shift(Format format, int64_t element) {
    if (format == Format::kivi2) return static_cast<int>(element / 2 % 4 * 2);
    return element < 4 ? 0 : 4;
}

struct Block {
    const std::byte* codes;
    const std::byte* scales;
};

}  // namespace qk::attention
