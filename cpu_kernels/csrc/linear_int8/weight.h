// W8A8 as the linear driver sees it.
#pragma once

#include "linear/packed_weight.h"
#include "linear_int8/linear_int8.h"

namespace qk::linear_int8 {

// The divisor of activations: a scale for each token, for all tokens of a call, or one that was found before.
enum class Inputs : uint8_t { per_token, per_tensor, fixed };

class Int8Input final : public linear::InputFormat {
public:
    // scale is that of fixed inputs. Tokens are rows of codes with their tail, or tiles, whose tails follow them.
    Int8Input(int64_t row_size, Inputs inputs, float scale, bool tiles)
        : row_size_(row_size), inputs_(inputs), scale_(scale), places_(row_size, tiles) {}

    size_t bytes(int64_t num_tokens) const override { return places_.bytes(num_tokens); }
    linear::Input view(const std::byte* tokens, int64_t num_tokens, int64_t first, int64_t count) const override {
        return places_.view(tokens, num_tokens, first, count);
    }
    void prepare(const float* x, const linear::Place& place, float shared, Isa isa) const override;
    void copy(const linear::Input& from, int64_t i, const linear::Place& to) const override {
        places_.copy(from, i, to);
    }
    bool shares() const override { return inputs_ == Inputs::per_tensor; }
    float share_of(const float* x, Isa isa) const override;
    bool equals(const linear::InputFormat& other) const override;

private:
    float scale_of(const float* x, float shared, const Kernels& kernels) const;

    int64_t row_size_;
    Inputs inputs_;
    float scale_;
    CodePlaces places_;
};

class W8A8 final : public linear::PackedWeight<Packed, Int8Input, Int8Input> {
public:
    W8A8(std::string name, Packed packed, Inputs inputs, float input_scale)
        : PackedWeight(std::move(packed), Int8Input(packed.row_size(), inputs, input_scale, true), inputs, input_scale,
                       false),
          name_(std::move(name)) {}

    std::string_view format() const override { return name_; }
    linear::Choice choose(int64_t num_tokens, std::optional<std::string_view> isa, linear::Path path) const override;
    Isa multiply(int64_t begin, int64_t end, const linear::Input& x, float* y, int64_t y_stride,
                 const linear::Choice& choice) const override;
    void rows(const int64_t* index, int64_t num_indices, float* out) const override;

private:
    std::string name_;
};

}  // namespace qk::linear_int8
