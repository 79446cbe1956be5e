#include <algorithm>
#include <cstring>

#include "linear_int8/linear_int8.h"
#include "thread_pool.h"

namespace qk::linear_int8 {
namespace {

constexpr int group_bytes = linear::panel_rows * 4;

// Flips the top bit of each of 4 bytes: int8 q becomes uint8 q + 128.
uint32_t add_bias(uint32_t four_codes) { return four_codes ^ 0x80808080u; }

int64_t padded_rows(int64_t num_rows) { return linear::round_up(num_rows, linear::panel_rows); }

// weight [num_rows, K] of this panel, num_rows <= 16
void pack_panel(const int8_t* weight, int64_t num_rows, int64_t row_size, std::byte* out) {
    for (int64_t k = 0; k < padded_row(row_size); k += 4) {
        const auto count = static_cast<size_t>(std::clamp<int64_t>(row_size - k, 0, 4));
        for (int64_t row = 0; row < linear::panel_rows; row++, out += 4) {
            uint32_t four_codes = 0;
            if (row < num_rows) std::memcpy(&four_codes, weight + row * row_size + k, count);
            four_codes = add_bias(four_codes);
            std::memcpy(out, &four_codes, 4);
        }
    }
}

}  // namespace

Packed::Packed(const int8_t* weight, const float* scale, int64_t num_rows, int64_t row_size)
    : num_rows_(num_rows), row_size_(row_size), buffer_(Buffer::long_lived(bytes(num_rows, row_size))) {
    const linear::Panels packed = panels();
    auto* codes = reinterpret_cast<std::byte*>(buffer_.data());
    thread_pool()->run(padded_rows(num_rows) / linear::panel_rows, [&](int64_t panel) {
        const int64_t row = panel * linear::panel_rows;
        pack_panel(weight + row * row_size, std::min<int64_t>(num_rows - row, linear::panel_rows), row_size,
                   codes + panel * packed.panel_bytes);
    });
    auto* scales_out = const_cast<float*>(scales());
    std::copy_n(scale, num_rows, scales_out);
    std::fill(scales_out + num_rows, scales_out + padded_rows(num_rows), 0.0f);
}

size_t Packed::bytes(int64_t num_rows, int64_t row_size) {
    return static_cast<size_t>(padded_rows(num_rows)) * (static_cast<size_t>(padded_row(row_size)) + sizeof(float));
}

linear::Panels Packed::panels() const {
    const int64_t num_groups = padded_row(row_size_) / 4;
    return {reinterpret_cast<const std::byte*>(buffer_.data()), num_groups * group_bytes, num_groups, num_rows_};
}

const float* Packed::scales() const {
    return reinterpret_cast<const float*>(buffer_.data() + padded_rows(num_rows_) * padded_row(row_size_));
}

int8_t Packed::code(int64_t row, int64_t k) const {
    const std::byte* panel = panels().at(row / linear::panel_rows);
    const auto stored = panel[k / 4 * group_bytes + row % linear::panel_rows * 4 + k % 4];
    return static_cast<int8_t>(static_cast<int>(stored) - code_bias);
}

}  // namespace qk::linear_int8
