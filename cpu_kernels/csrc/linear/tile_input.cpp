#include <algorithm>

#include "linear/tile_rows.h"
#include "linear_float/linear_float.h"

namespace qk::linear {

TileInput::TileInput(int64_t row_size, std::vector<int32_t> order, int64_t tail_bytes)
    : row_size_(row_size), order_(std::move(order)), rows_((row_size + 31) / 32, tail_bytes) {}

void TileInput::prepare(const float* x, const Place& place, float, Isa isa) const {
    const auto round = linear_float::round_to_bf16(isa);
    for (int64_t block = 0; block < rows_.num_tiles(); block += k_block_tiles) {
        alignas(64) uint16_t rounded[k_block_tiles * 32];
        float ordered[k_block_tiles * 32];
        const int64_t first = block * 32, count = std::min<int64_t>(std::size(rounded), row_size_ - first);
        for (int64_t k = 0; !order_.empty() && k < count; k++) ordered[k] = x[order_[first + k]];
        round(order_.empty() ? x + first : ordered, count, rounded);
        const int64_t tiles = std::min(k_block_tiles, rows_.num_tiles() - block);
        std::fill(rounded + count, rounded + tiles * 32, uint16_t{0});
        std::byte* to = rows_.at(place.tokens, place.num_tokens, place.token, block);
        for (int64_t i = 0; i < tiles; i++) std::memcpy(to + i * tile_bytes, rounded + i * 32, tile_row_bytes);
    }
}

bool TileInput::equals(const InputFormat& other) const {
    const auto* same = dynamic_cast<const TileInput*>(&other);
    return same && same->row_size_ == row_size_ && same->order_ == order_;
}

}  // namespace qk::linear
