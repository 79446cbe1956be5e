// A weight that is one packed layout and two formats of prepared tokens: rows, and tiles for Isa::amx.
#pragma once

#include <utility>

#include "linear/weight.h"

namespace qk::linear {

template <class Packed, class Input, class TileInput>
class PackedWeight : public Weight {
public:
    int64_t num_rows() const final { return packed_.num_rows(); }
    int64_t row_size() const final { return packed_.row_size(); }
    std::span<const uint8_t> bytes() const final { return packed_.bytes(); }
    const InputFormat& input(const Choice& choice) const final {
        return choice.isa == Isa::amx ? static_cast<const InputFormat&>(tile_input_) : input_;
    }

protected:
    // `of_input` follows the row size in the constructor of Input.
    template <class... Args>
    explicit PackedWeight(Packed&& packed, TileInput tile_input, const Args&... of_input)
        : packed_(std::move(packed)), input_(packed_.row_size(), of_input...), tile_input_(std::move(tile_input)) {}

    Packed packed_;
    Input input_;
    TileInput tile_input_;
};

}  // namespace qk::linear
