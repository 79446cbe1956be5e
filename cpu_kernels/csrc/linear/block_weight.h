// A weight whose codes share scales in blocks or groups, packed as block.h draws it.
#pragma once

#include <string>

#include "buffer.h"
#include "linear/block.h"
#include "linear/block_input.h"
#include "linear/switch_points.h"

namespace qk::linear {

class BlockWeight final : public Weight {
public:
    // bytes: the packed panels; `format` lives as long as the library.
    BlockWeight(const CodeFormat& format, std::string name, int64_t num_rows, int64_t row_size,
                const PanelLayout& layout, Buffer bytes, BlockInput input);

    std::string_view format() const override { return name_; }
    int64_t num_rows() const override { return num_rows_; }
    int64_t row_size() const override { return row_size_; }
    std::span<const uint8_t> bytes() const override { return bytes_.bytes(); }
    const InputFormat& input(const Choice& choice) const override {
        return choice.path == Path::bf16 ? static_cast<const InputFormat&>(tile_input_) : input_;
    }
    int panels_a_task() const override { return panels_together; }
    Choice choose(int64_t num_tokens, std::optional<std::string_view> isa, Path path) const override;
    Isa multiply(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride,
                 const Choice& choice) const override;
    Isa multiply_and_add(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride, const Addends& addends,
                         const Choice& choice) const override;
    bool gates(const Weight& up, const Choice& choice, const InputFormat& to) const override;
    Isa multiply_gated(const Weight& up, int64_t begin, int64_t end, const Input& x, const InputFormat& format,
                       const Place& to, const Choice& choice) const override;
    void rows(const int64_t* index, int64_t num_indices, float* out) const override;

private:
    bool may_use_bf16() const;
    PackedPanels packed_panels(Isa isa) const;
    const uint8_t* at(int64_t panel, int64_t step) const { return bytes_.data() + layout_.offset(panel, step); }
    Isa multiply_direct(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride,
                        const BlockKernels& kernels) const;
    Isa multiply_tiles(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride,
                       const Choice& choice) const;
    void fetch_after(Stretch& stretch, int64_t i, int64_t step, int64_t first, int64_t last) const;
    void store_all(int64_t first, int64_t last, const float* sums, int64_t num_tokens, float* y,
                   int64_t y_stride) const;
    void store(int64_t panel, const float* values, float* y) const;
    void unpack_row(int64_t row, float* out) const;

    const CodeFormat& format_;
    const Rerounding* rerounding_;  // null if the format has no rerounding
    const SwitchPoints& switch_points_;
    std::string name_;
    int64_t num_rows_, row_size_;
    PanelLayout layout_;
    Buffer bytes_;
    BlockInput input_;
    TileInput tile_input_;
};

// blocks  [N, K / block_size * block_bytes] uint8, as GGUF has them
std::shared_ptr<Weight> pack_blocks(const BlockFormat& format, const uint8_t* blocks, int64_t num_rows,
                                    int64_t row_size);

// The same over panels that were packed before.
std::shared_ptr<Weight> over_blocks(const BlockFormat& format, int64_t num_rows, int64_t row_size, Buffer packed);

// Codes of a row and step, unsigned, to the row's place in the planes at `to`. q [32]
void pack_codes(const uint8_t* q, int bits, int row, uint8_t* to);

// Parts of a group format.
struct GroupParts {
    const uint8_t* codes;       // [N, row_bytes], bits of one little-endian stream a row, q + 2^(bits - 1)
    int64_t row_bytes;
    const uint16_t* scale;      // [N, G] float16
    const int8_t* zero_point;   // [N, G], or null
    const int32_t* group_of;    // [K] group of each feature, as many in each; null: k // group_size
};

// group_size is a multiple of 32, or the whole row's size.
PanelLayout group_layout(const GroupFormat& format, int64_t num_rows, int64_t row_size, int64_t group_size);

// The same over panels that were packed before.
std::shared_ptr<Weight> over_groups(const GroupFormat& format, std::string name, const int32_t* group_of,
                                    int64_t num_rows, int64_t row_size, int64_t group_size, Buffer packed);

// name: with the group size, "w4g128"
std::shared_ptr<Weight> pack_groups(const GroupFormat& format, std::string name, const GroupParts& parts,
                                    int64_t num_rows, int64_t row_size, int64_t group_size);

}  // namespace qk::linear
