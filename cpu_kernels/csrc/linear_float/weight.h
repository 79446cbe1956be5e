// Float weights as the linear driver sees them.
#pragma once

#include "linear/packed_weight.h"
#include "linear/tile_rows.h"
#include "linear_float/linear_float.h"

namespace qk::linear_float {

// A prepared token: float32 [K], bfloat16 [K padded to 32], or one after the other.
class FloatInput final : public linear::RowInput {
public:
    FloatInput(int64_t row_size, bool has_f32, bool has_bf16);

    size_t token_bytes() const override { return token_bytes_; }
    void prepare_row(const float* x, std::byte* out, float shared, Isa isa) const override;
    bool equals(const linear::InputFormat& other) const override;

    size_t bf16_offset() const { return bf16_offset_; }

private:
    int64_t row_size_;
    bool has_f32_, has_bf16_;
    size_t bf16_offset_, token_bytes_;
};

class FloatWeight final : public linear::PackedWeight<Packed, FloatInput, linear::TileInput> {
public:
    explicit FloatWeight(Packed packed);

    std::string_view format() const override;
    linear::Choice choose(int64_t num_tokens, std::optional<std::string_view> isa, linear::Path path) const override;
    Isa multiply(int64_t begin, int64_t end, const linear::Input& x, float* y, int64_t y_stride,
                 const linear::Choice& choice) const override;
    void rows(const int64_t* index, int64_t num_indices, float* out) const override;
};

}  // namespace qk::linear_float
