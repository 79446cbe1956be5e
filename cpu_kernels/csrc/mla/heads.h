// A matrix of each head in panels.
#pragma once

#include <cstdint>
#include <memory>

#include "buffer.h"
#include "mla/kernels.h"

namespace qk::mla {

// [heads, inputs, outputs], from finite float32; outputs are padded to whole panels with zeros.
class HeadMatrices {
public:
    // weights [heads, inputs, outputs] float32; strides in floats, so that a matrix may be given turned
    HeadMatrices(Format format, const float* weights, int64_t heads, int64_t inputs, int64_t outputs,
                 int64_t input_stride, int64_t output_stride);

    int64_t heads() const { return heads_; }
    int64_t inputs() const { return inputs_; }
    int64_t outputs() const { return outputs_; }
    int64_t panels() const { return (outputs_ + panel_columns - 1) / panel_columns; }  // of a head
    size_t nbytes() const { return bytes_.size(); }

    // y [tokens, outputs] of one head's panels [first, last): columns from 64 first on.
    Isa multiply(int64_t head, int64_t first, int64_t last, Product product, const Kernels& kernels) const;

private:
    Panel panel(int64_t head, int64_t index) const;
    void put_column(int64_t head, int64_t index, int64_t column, const float* weights, int64_t input_stride);

    Format format_;
    int64_t heads_, inputs_, outputs_;
    Buffer bytes_;
};

}  // namespace qk::mla
