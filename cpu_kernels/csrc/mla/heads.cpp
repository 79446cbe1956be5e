#include "mla/heads.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "half.h"

namespace qk::mla {
namespace {

uint16_t to_half(float x) { return std::isnan(x) ? uint16_t{0x7e00} : float_to_half(x); }

uint16_t to_bf16(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

void put(Format format, float x, float scale, std::byte* to) {
    if (format == Format::f32) {
        std::memcpy(to, &x, sizeof x);
        return;
    }
    if (format == Format::int8) {
        *to = static_cast<std::byte>(static_cast<int8_t>(scale == 0 ? 0 : std::nearbyint(x / scale)));
        return;
    }
    const uint16_t code = format == Format::f16 ? to_half(x) : to_bf16(x);
    std::memcpy(to, &code, sizeof code);
}

}  // namespace

HeadMatrices::HeadMatrices(Format format, const float* weights, int64_t heads, int64_t inputs, int64_t outputs,
                           int64_t input_stride, int64_t output_stride)
    : format_(format), heads_(heads), inputs_(inputs), outputs_(outputs) {
    bytes_ = Buffer::long_lived(static_cast<size_t>(heads * panels() * Panel{format, nullptr, inputs}.nbytes()));
    for (int64_t h = 0; h < heads; h++, weights += inputs * outputs)
        for (int64_t i = 0; i < panels(); i++)
            for (int64_t column = i * panel_columns; column < (i + 1) * panel_columns; column++)
                put_column(h, i, column % panel_columns, column < outputs ? weights + column * output_stride : nullptr,
                           input_stride);
}

// weights [inputs], input_stride apart; null: zeros
void HeadMatrices::put_column(int64_t head, int64_t index, int64_t column, const float* weights, int64_t input_stride) {
    const Panel to = panel(head, index);
    const auto at = [&](int64_t k) { return weights ? weights[k * input_stride] : 0.0f; };
    float scale = 0;
    for (int64_t k = 0; k < inputs_; k++) {
        if (format_ == Format::int8 && k % group_inputs == 0) {
            float absmax = 0;
            for (int64_t i = k; i < std::min(k + group_inputs, inputs_); i++)
                absmax = std::max(absmax, std::abs(at(i)));
            scale = absmax / 127;
            const_cast<float*>(to.scales())[k / group_inputs * panel_columns + column] = scale;
        }
        put(format_, at(k), scale,
            const_cast<std::byte*>(to.weights()) + (k * panel_columns + column) * item_bytes(format_));
    }
}

Panel HeadMatrices::panel(int64_t head, int64_t index) const {
    Panel panel{format_, nullptr, inputs_};
    panel.data = reinterpret_cast<const std::byte*>(bytes_.data()) + (head * panels() + index) * panel.nbytes();
    return panel;
}

Isa HeadMatrices::multiply(int64_t head, int64_t first, int64_t last, Product product, const Kernels& kernels) const {
    Isa ran{};
    for (int64_t i = first; i < last; i++, product.y += panel_columns) {
        if ((i + 1) * panel_columns <= outputs_) {
            ran = kernels.multiply(panel(head, i), product);
            continue;
        }
        float whole[panel_columns];  // of which the tail is nobody's
        for (int64_t t = 0; t < product.tokens; t++) {
            ran = kernels.multiply(panel(head, i),
                                   {product.x + t * product.x_stride, product.x_stride, 1, whole, panel_columns});
            std::copy_n(whole, outputs_ - i * panel_columns, product.y + t * product.y_stride);
        }
    }
    return ran;
}

}  // namespace qk::mla
