// Several weights on one input, with the steps around them: one call where a layer has a chain of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fused/row_steps.h"
#include "linear/product.h"

namespace qk::fused {

// Rows of float32 with any stride.
struct Rows {
    const float* data;
    int64_t count, size, stride;

    const float* operator[](int64_t row) const { return data + row * stride; }
};

struct Norm {
    const float* weight;  // [K]
    float eps;
};

class Group {
public:
    // biases[i]: [N] of weights[i], or empty. Throws std::invalid_argument where row sizes differ.
    Group(std::vector<std::shared_ptr<const linear::Weight>> weights, std::vector<std::vector<float>> biases);

    size_t size() const { return weights_.size(); }
    int64_t row_size() const { return weights_.front()->row_size(); }
    int64_t num_rows(size_t i) const { return weights_[i]->num_rows(); }

    // Whether a token's result may depend on the others of its call.
    bool shares() const;

    // The implementation of each weight; reads the environment.
    std::vector<linear::Choice> choose(int64_t num_tokens) const;

    // y[i] [M, N] = rows @ weights[i]^T + biases[i] + residual, which has data for a group of one alone, if at all.
    // ran[i], if given, is the kernel that multiplied.
    void multiply(const linear::RowSource& row, int64_t num_tokens, std::span<const linear::Choice> choices,
                  std::span<float* const> y, const Rows& residual, std::span<Isa> ran = {}) const;

    // Whether this is a group of two that multiply_gated takes.
    bool gates(std::span<const linear::Choice> choices, const linear::InputFormat& format) const;
    // silu(rows @ weights[0]^T) * (rows @ weights[1]^T) becomes tokens [format.bytes(M)] that another product reads.
    void multiply_gated(const linear::RowSource& row, int64_t num_tokens, std::span<const linear::Choice> choices,
                        const linear::InputFormat& format, std::byte* tokens) const;

    // For a group of one: y [M, N] of M tokens in the format of `input`.
    void multiply_prepared(std::byte* tokens, int64_t num_tokens, const linear::Choice& choice, float* y,
                           const Rows& residual) const;
    const linear::InputFormat& input(const linear::Choice& choice) const { return weights_.front()->input(choice); }

private:
    linear::Term term(size_t i, const linear::Choice& choice, float* y, const Rows& residual) const;

    std::vector<std::shared_ptr<const linear::Weight>> weights_;
    std::vector<std::vector<float>> biases_;
};

// The source of the products' rows: as they are, or normed when they are read.
linear::RowSource source_of(const Rows& x, const std::optional<Norm>& norm, const RowSteps& steps);

// The implementations of a feed-forward net, decided while the environment may be read.
struct FeedForwardChoices {
    std::vector<linear::Choice> gate_up, down;
    RowSteps steps;
};

// Tokens of a round of feed_forward: as many as read the weights once (product.cpp), so that gate and up of a long
// prompt take no more memory than those of this many, 32 MiB for a net of 8192.
inline constexpr int64_t net_tokens = 512;

// out [M, N] = silu_mul(gate, up) @ down^T (+ residual), where gate and up are gate_up's products with x or norm(x).
void feed_forward(const Group& gate_up, const Group& down, const Rows& x, const std::optional<Norm>& norm,
                  const Rows& residual, float* out, const FeedForwardChoices& choices);

}  // namespace qk::fused
