#include <algorithm>
#include <bit>
#include <cstring>

#include "half.h"
#include "linear_float/linear_float.h"
#include "thread_pool.h"

namespace qk::linear_float {
namespace {

int64_t padded_rows(int64_t num_rows) { return linear::round_up(num_rows, linear::panel_rows); }

// k that are side by side in a group.
constexpr int64_t step_of(Kind kind) { return kind == Kind::bf16 ? 2 : 1; }

// weight [num_rows, K] of this panel, num_rows <= 16
void pack_panel(Kind kind, const std::byte* weight, int64_t num_rows, int64_t row_size, std::byte* out) {
    const int64_t size = bytes_of(kind), step = step_of(kind), word = step * size;
    for (int64_t k = 0; k < padded_row(kind, row_size); k += step) {
        const auto there = static_cast<size_t>(std::clamp<int64_t>(row_size - k, 0, step) * size);
        for (int64_t row = 0; row < linear::panel_rows; row++, out += word) {
            std::memset(out, 0, static_cast<size_t>(word));
            if (row < num_rows) std::memcpy(out, weight + (row * row_size + k) * size, there);
        }
    }
}

}  // namespace

Packed::Packed(Kind kind, const std::byte* weight, int64_t num_rows, int64_t row_size)
    : kind_(kind),
      num_rows_(num_rows),
      row_size_(row_size),
      buffer_(Buffer::long_lived(bytes(kind, num_rows, row_size))) {
    const int64_t panel_bytes = panels().panel_bytes, row_bytes = row_size * bytes_of(kind);
    auto* out = reinterpret_cast<std::byte*>(buffer_.data());
    thread_pool()->run(padded_rows(num_rows) / linear::panel_rows, [&](int64_t panel) {
        const int64_t row = panel * linear::panel_rows;
        pack_panel(kind, weight + row * row_bytes, std::min<int64_t>(num_rows - row, linear::panel_rows), row_size,
                   out + panel * panel_bytes);
    });
}

size_t Packed::bytes(Kind kind, int64_t num_rows, int64_t row_size) {
    return static_cast<size_t>(padded_rows(num_rows) * padded_row(kind, row_size) * bytes_of(kind));
}

linear::Panels Packed::panels() const {
    const int64_t padded = padded_row(kind_, row_size_);
    return {reinterpret_cast<const std::byte*>(buffer_.data()), padded * linear::panel_rows * bytes_of(kind_),
            padded / step_of(kind_), num_rows_};
}

float Packed::value(int64_t row, int64_t k) const {
    const int64_t step = step_of(kind_), size = bytes_of(kind_);
    const int64_t place = (k / step * linear::panel_rows + row % linear::panel_rows) * step + k % step;
    const std::byte* stored = panels().at(row / linear::panel_rows) + place * size;
    uint32_t bits = 0;
    std::memcpy(&bits, stored, static_cast<size_t>(size));
    if (kind_ == Kind::f16) return half_to_float(static_cast<uint16_t>(bits));
    return std::bit_cast<float>(kind_ == Kind::bf16 ? bits << 16 : bits);
}

}  // namespace qk::linear_float
