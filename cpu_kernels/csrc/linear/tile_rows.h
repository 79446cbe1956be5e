// Activations as tile instructions read them: 16 tokens x 64 bytes are a tile, whose memory is one run of 1 KiB. 16 tiles
// of K are a block, and the blocks of all tokens follow each other before the next 16 tiles of K begin:
//
//     tiles 0..15   | tokens 0..15: tile 0, tile 1, ... tile 15 | tokens 16..31 | ... |
//     tiles 16..31  | tokens 0..15 | ...
//     tails         | tokens 0..15, in the room of a block | tokens 16..31 | ... |
//
// So a product that takes 16 tiles of K at a time reads its activations from end to end. As a matrix has them, rows may be
// 4 KiB apart, and all 16 of a tile in one set of the L1. A product packs its input once, 0.2 ms for 512 x 2048, and all
// weights that read the same input share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "linear/input.h"
#include "linear/weight.h"

namespace qk::linear {

inline constexpr int tile_rows = 16;
inline constexpr int tile_row_bytes = 64;
inline constexpr int64_t tile_bytes = tile_rows * tile_row_bytes;

inline constexpr int64_t k_block_tiles = 16;
inline constexpr int64_t k_block_bytes = k_block_tiles * tile_bytes;

// The places of the tiles of tokens whose K elements fill num_tiles of them, and of tail_bytes of other facts per token.
class TileRows {
public:
    explicit constexpr TileRows(int64_t num_tiles, int64_t tail_bytes = 0)
        : num_tiles_(num_tiles), tail_bytes_(tail_bytes) {}

    int64_t num_tiles() const { return num_tiles_; }
    int64_t tail_bytes() const { return tail_bytes_; }

    size_t bytes(int64_t num_tokens) const {
        return static_cast<size_t>((num_blocks() + (tail_bytes_ ? 1 : 0)) * block_stride(num_tokens));
    }
    Input view(const std::byte* tokens, int64_t num_tokens, int64_t first, int64_t count) const {
        return {tokens + first / tile_rows * k_block_bytes, static_cast<size_t>(block_stride(num_tokens)), count};
    }

    // 64 bytes of token number `token` of num_tokens.
    std::byte* at(std::byte* tokens, int64_t num_tokens, int64_t token, int64_t tile) const {
        return tokens + offset(block_stride(num_tokens), token, tile);
    }
    std::byte* tail(std::byte* tokens, int64_t num_tokens, int64_t token) const {
        return tokens + tail_offset(block_stride(num_tokens), token);
    }
    const std::byte* tail(const Input& x, int64_t token) const {
        return x.tokens + tail_offset(static_cast<int64_t>(x.token_bytes), token);
    }

    // row [num_tiles * 64 bytes] becomes a token.
    void scatter(const std::byte* row, std::byte* tokens, int64_t num_tokens, int64_t token) const {
        for (int64_t i = 0; i < num_tiles_; i++)
            std::memcpy(at(tokens, num_tokens, token, i), row + i * tile_row_bytes, tile_row_bytes);
    }

    // Token i of `from`, with its tail, becomes token number j of num_tokens at `to`.
    void copy(const Input& from, int64_t i, std::byte* to, int64_t num_tokens, int64_t j) const {
        for (int64_t tile = 0; tile < num_tiles_; tile++)
            std::memcpy(at(to, num_tokens, j, tile),
                        from.tokens + offset(static_cast<int64_t>(from.token_bytes), i, tile), tile_row_bytes);
        std::memcpy(tail(to, num_tokens, j), tail(from, i), static_cast<size_t>(tail_bytes_));
    }

private:
    int64_t num_blocks() const { return (num_tiles_ + k_block_tiles - 1) / k_block_tiles; }
    // Bytes from 16 tiles of K to the next 16.
    static int64_t block_stride(int64_t num_tokens) { return (num_tokens + tile_rows - 1) / tile_rows * k_block_bytes; }
    static int64_t offset(int64_t stride, int64_t token, int64_t tile) {
        return tile / k_block_tiles * stride + token / tile_rows * k_block_bytes + tile % k_block_tiles * tile_bytes +
               token % tile_rows * tile_row_bytes;
    }
    int64_t tail_offset(int64_t stride, int64_t token) const {
        return num_blocks() * stride + token / tile_rows * k_block_bytes + token % tile_rows * tail_bytes_;
    }

    int64_t num_tiles_, tail_bytes_;
};

// bfloat16 activations in tiles, 32 of a token per tile, the last ones filled up with zeros.
class TileInput final : public InputFormat {
public:
    // order, if not empty: [row_size] which feature of x is the k-th that the weight reads
    // tail_bytes: of a token, which someone else fills in
    explicit TileInput(int64_t row_size, std::vector<int32_t> order = {}, int64_t tail_bytes = 0);

    const TileRows& rows() const { return rows_; }
    size_t bytes(int64_t num_tokens) const override { return rows_.bytes(num_tokens); }
    Input view(const std::byte* tokens, int64_t num_tokens, int64_t first, int64_t count) const override {
        return rows_.view(tokens, num_tokens, first, count);
    }
    void prepare(const float* x, const Place& place, float shared, Isa isa) const override;
    void copy(const Input& from, int64_t i, const Place& to) const override {
        rows_.copy(from, i, to.tokens, to.num_tokens, to.token);
    }
    const TileRows* plain_tiles() const override { return order_.empty() && !rows_.tail_bytes() ? &rows_ : nullptr; }
    bool equals(const InputFormat& other) const override;

private:
    int64_t row_size_;
    std::vector<int32_t> order_;
    TileRows rows_;
};

}  // namespace qk::linear
