// A weight of a trellis code as the linear driver sees it: its input is turned before it is rounded, and its outputs are
// turned back.
#pragma once

#include <string>

#include "linear/block_weight.h"
#include "linear_trellis/linear_trellis.h"

namespace qk::linear_trellis {

// A prepared token: the blocks of the turned activations, then their sum, times rounded_step * rounded_rest.
class TrellisInput final : public linear::RowInput {
public:
    explicit TrellisInput(int64_t row_size) : row_size_(row_size), blocks_(row_size) {}

    size_t token_bytes() const override { return blocks_.token_bytes() + sizeof(linear::ActivationBlock); }
    void prepare_row(const float* x, std::byte* out, float shared, Isa isa) const override;
    bool equals(const linear::InputFormat& other) const override;

    float rest(const linear::Input& x, int64_t token) const;

private:
    int64_t row_size_;
    linear::BlockInput blocks_;
};

// The same in bfloat16 tiles, with that sum as the tail of a token.
class TrellisTileInput final : public linear::InputFormat {
public:
    explicit TrellisTileInput(int64_t row_size)
        : row_size_(row_size), tiles_(row_size, {}, static_cast<int64_t>(sizeof(float))) {}

    size_t bytes(int64_t num_tokens) const override { return tiles_.bytes(num_tokens); }
    linear::Input view(const std::byte* tokens, int64_t num_tokens, int64_t first, int64_t count) const override {
        return tiles_.view(tokens, num_tokens, first, count);
    }
    void prepare(const float* x, const linear::Place& place, float shared, Isa isa) const override;
    void copy(const linear::Input& from, int64_t i, const linear::Place& to) const override {
        tiles_.copy(from, i, to);
    }
    bool equals(const linear::InputFormat& other) const override;

    const linear::TileRows& rows() const { return tiles_.rows(); }
    float rest(const linear::Input& x, int64_t token) const;

private:
    int64_t row_size_;
    linear::TileInput tiles_;
};

// Panels of blocks without a header, then a scale for each row.
linear::PanelLayout layout_of(int bits, int state_bits, int64_t num_rows, int64_t row_size);
size_t packed_bytes(int bits, int64_t num_rows, int64_t row_size);

// words [N, K / 8 * bits] bytes, as quant has them; scale [N] float32
Buffer pack(const linear::PanelLayout& layout, int bits, const uint8_t* words, const float* scale, int64_t row_size);

class TrellisWeight final : public linear::Weight {
public:
    TrellisWeight(const linear::TrellisFormat& format, std::string name, int64_t num_rows, int64_t row_size,
                  const linear::PanelLayout& layout, Buffer packed);

    std::string_view format() const override { return codes_.format(); }
    int64_t num_rows() const override { return codes_.num_rows(); }
    int64_t row_size() const override { return codes_.row_size(); }
    std::span<const uint8_t> bytes() const override { return codes_.bytes(); }
    const linear::InputFormat& input(const linear::Choice& choice) const override {
        return choice.path == linear::Path::bf16 ? static_cast<const linear::InputFormat&>(tile_input_) : input_;
    }
    int panels_a_task() const override { return codes_.panels_a_task(); }
    linear::Choice choose(int64_t num_tokens, std::optional<std::string_view> isa, linear::Path path) const override;
    Isa multiply(int64_t begin, int64_t end, const linear::Input& x, float* y, int64_t y_stride,
                 const linear::Choice& choice) const override;
    void rows(const int64_t* index, int64_t num_indices, float* out) const override;

private:
    linear::Switches switches(Isa isa) const;
    bool rounds(int64_t num_tokens, Isa isa) const;
    bool rounds_to_bf16(int64_t num_tokens) const;
    const float* scale() const { return reinterpret_cast<const float*>(codes_.bytes().data() + layout_.nbytes()); }
    float value(int64_t row, int64_t k) const;
    void turned_rows(int64_t panel, float* out) const;

    const linear::TrellisFormat& format_;
    linear::PanelLayout layout_;
    linear::BlockWeight codes_;  // the product of turned inputs, before scales
    TrellisInput input_;
    TrellisTileInput tile_input_;
};

}  // namespace qk::linear_trellis
