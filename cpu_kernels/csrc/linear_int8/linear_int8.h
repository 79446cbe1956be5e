// int8 weights with a scale per output row, times int8 activations with a scale per token: exact integer sums over all
// of K, scaled once at the end. W8A8 and the int8 part of LLM.int8().
// The arithmetic is defined by linear_w8a8_ref in cpu_kernels/linear_int8.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "buffer.h"
#include "dispatch.h"
#include "linear/dense.h"
#include "linear/tile_rows.h"

namespace qk::linear_int8 {

// A code is stored as q + 128, as vpdpbusd wants one operand unsigned. This adds 128 * sum(x) to a sum, which depends
// on the token alone: its sums start at the negative of it.
inline constexpr int code_bias = 128;

// 64 k: the 16 groups that one AMX tile takes. Rows and tokens are padded to it with codes of 0.
inline constexpr int64_t row_multiple = 64;

// |sum| <= 128 * 128 * K must be an int32. Partial sums may leave it: they wrap, and come back.
inline constexpr int64_t max_row_size = ((int64_t{1} << 31) - 1) / (128 * 128);

// A prepared token: int8 codes [K padded to 64], then this.
struct TokenTail {
    float scale;     // LLM.int8(): the absmax
    int32_t offset;  // -128 * sum(codes)
};

constexpr int64_t padded_row(int64_t row_size) { return linear::round_up(row_size, row_multiple); }
// Where the codes and tails of a call's tokens are: in rows, each with its tail, or in the tiles of AMX.
class CodePlaces {
public:
    CodePlaces(int64_t row_size, bool tiles)
        : padded_(padded_row(row_size)),
          tiles_(tiles),
          rows_(padded_ / linear::tile_row_bytes, static_cast<int64_t>(sizeof(TokenTail))) {}

    bool operator==(const CodePlaces& other) const { return padded_ == other.padded_ && tiles_ == other.tiles_; }

    size_t bytes(int64_t num_tokens) const {
        return tiles_ ? rows_.bytes(num_tokens) : static_cast<size_t>(num_tokens) * row_bytes();
    }
    linear::Input view(const std::byte* tokens, int64_t num_tokens, int64_t first, int64_t count) const {
        if (tiles_) return rows_.view(tokens, num_tokens, first, count);
        return {tokens + static_cast<size_t>(first) * row_bytes(), row_bytes(), count};
    }
    // codes [K padded to 64]
    void put(const int8_t* codes, const TokenTail& tail, const linear::Place& to) const;
    void copy(const linear::Input& from, int64_t i, const linear::Place& to) const;

private:
    size_t row_bytes() const { return linear::token_stride(static_cast<size_t>(padded_) + sizeof(TokenTail)); }

    int64_t padded_;
    bool tiles_;
    linear::TileRows rows_;
};

// Codes in panels of 16 rows x groups of 4 k, then the scales, both padded to whole panels with 0.
class Packed {
public:
    // weight [N, K] int8; scale [N] float32
    Packed(const int8_t* weight, const float* scale, int64_t num_rows, int64_t row_size);
    Packed(int64_t num_rows, int64_t row_size, Buffer packed)
        : num_rows_(num_rows), row_size_(row_size), buffer_(std::move(packed)) {}
    static size_t bytes(int64_t num_rows, int64_t row_size);

    int64_t num_rows() const { return num_rows_; }
    int64_t row_size() const { return row_size_; }
    size_t nbytes() const { return buffer_.size(); }
    std::span<const uint8_t> bytes() const { return buffer_.bytes(); }
    linear::Panels panels() const;
    const float* scales() const;
    int8_t code(int64_t row, int64_t k) const;

private:
    int64_t num_rows_, row_size_;
    Buffer buffer_;
};

// y = (sum * weight_scale) * token_scale         W8A8
//     (sum * (token_scale * weight_scale)) / 127^2   LLM.int8(), by bitsandbytes' constant
enum class Scaling : uint8_t { w8a8, llm_int8 };

// The factor by which bitsandbytes turns the integer sums into floats, its digits included; 1 / 127**2.
inline constexpr float per_product = 6.200124e-05f;

struct Target {
    const float* weight_scale;  // [N padded to 16]
    int64_t codes_per_token;    // where a token's tail is
    float* y;
    int64_t y_stride;
    Scaling scaling;
};

struct Kernels {
    // The largest magnitude; NaN if x has a NaN.
    float (*absmax)(const float* x, int64_t size);
    // round(x / scale) to even, clamped to [-128, 127], 0 for NaN; returns their sum. A scale of NaN gives zeros.
    int32_t (*codes)(const float* x, int64_t size, float scale, int8_t* out);
    // The rows of panels [begin, end) for all tokens. Returns its own name: the proof that it ran.
    Isa (*multiply)(const linear::Panels&, int64_t begin, int64_t end, const linear::Input&, const Target&);
};

std::span<const Impl<Kernels>> table();

// The kernels of this instruction set, or the best below it: codes are the same everywhere.
const Kernels& kernels_of(Isa isa);

#define QK_DECLARE(isa)                                                                                   \
    namespace isa {                                                                                       \
    float absmax(const float* x, int64_t size);                                                           \
    int32_t codes(const float* x, int64_t size, float scale, int8_t* out);                                \
    Isa multiply(const linear::Panels&, int64_t begin, int64_t end, const linear::Input&, const Target&); \
    }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx512)
QK_DECLARE(avx512_vnni)
QK_DECLARE(amx)
#undef QK_DECLARE
namespace avx_vnni {  // codes are those of AVX2
Isa multiply(const linear::Panels&, int64_t begin, int64_t end, const linear::Input&, const Target&);
}

}  // namespace qk::linear_int8
