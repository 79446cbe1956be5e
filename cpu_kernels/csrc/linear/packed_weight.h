// A weight that is one packed layout and one format of prepared tokens.
#pragma once

#include <utility>

#include "linear/weight.h"

namespace qk::linear {

template <class Packed, class Input>
class PackedWeight : public Weight {
public:
    int64_t num_rows() const final { return packed_.num_rows(); }
    int64_t row_size() const final { return packed_.row_size(); }
    std::span<const uint8_t> bytes() const final { return packed_.bytes(); }
    const InputFormat& input() const final { return input_; }

protected:
    // `of_input` follows the row size in Input's constructor.
    template <class... Args>
    explicit PackedWeight(Packed&& packed, const Args&... of_input)
        : packed_(std::move(packed)), input_(packed_.row_size(), of_input...) {}

    Packed packed_;
    Input input_;
};

}  // namespace qk::linear
