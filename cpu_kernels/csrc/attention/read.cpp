#include <cstddef>
#include <cstdint>
#include <limits>

#include "attention/attention.h"
#include "simd/headers.h"

namespace qk::attention {
namespace {

#include "simd/float_scalar.inl"
#include "simd/int_scalar.inl"
#include "simd/half_scalar.inl"
#include "attention/lanes_scalar.inl"
#include "attention/codes.inl"

// Element e of lane `lane` of a block, a byte of it or a nibble
uint32_t lane_code(Format format, const std::byte* codes, int64_t lane, int64_t e) {
    const auto byte = static_cast<uint32_t>(codes[element_byte(format, lane, e)]);
    return lane_elements(format) == 8 ? byte >> (e < 4 ? 0 : 4) & 15 : byte;
}

// Element i of those that lie in lanes i / elements * stride + offset, before any scale
float code_at(Format format, const std::byte* codes, int64_t i, int64_t stride, int64_t offset) {
    const int elements = lane_elements(format);
    const int64_t lane = i / elements * stride + offset;
    switch (format) {
        case Format::f32: return F32::at(codes, lane).v;
        case Format::f16: return F16::at(codes, lane).v;
        case Format::bf16: return Bf16::at(codes, lane).v;
        default: break;
    }
    const uint32_t code = lane_code(format, codes, lane, i % elements);
    if (format == Format::e4m3) return float8_of_top<Format::e4m3, true>({code << 24}).v * 0x1p120f;
    if (format == Format::e5m2) return float8_of_top<Format::e5m2, true>({code << 24}).v * 0x1p112f;
    return static_cast<float>(code);
}

// A code's value: of float8 times the scale, of integers times the group's scale and plus its minimum.
float value_of(const Layout& layout, float code, const std::byte* scales, int64_t token, int64_t d, float given) {
    if (is_integer(layout.format)) {
        const int64_t group = layout.format == Format::int4 ? d / int4_group : 0;
        const auto* halves = reinterpret_cast<const uint16_t*>(scales) + group * 2 * block_tokens + token;
        return code * half_to_float(halves[0]) + half_to_float(halves[block_tokens]);
    }
    return code * (layout.has_token_scales() ? reinterpret_cast<const float*>(scales)[token] : given);
}

}  // namespace

void read(const Store& store, const Sequences& sequences, const Heads<float>& k, const Heads<float>& v) {
    const Layout& layout = store.layout();
    for (int64_t b = 0; b < k.batch; b++)
        for (int64_t g = 0; g < k.heads; g++)
            for (int64_t t = 0; t < k.tokens; t++) {
                const auto [page, index] = sequences.locate(b, t);
                const int64_t token = t % block_tokens;
                const Block key = store.keys().block(page, g, index, store.per_tensor());
                const Block value = store.values().block(page, g, index, store.per_tensor());
                for (int64_t d = 0; d < layout.head_dim; d++) {
                    const float key_code = code_at(layout.format, key.codes, d, block_tokens, token);
                    const float value_code = code_at(layout.format, value.codes, token, layout.head_dim, d);
                    k.at(b, g, t)[d] = value_of(layout, key_code, key.scales, token, d, store.keys().given[g]);
                    v.at(b, g, t)[d] = value_of(layout, value_code, value.scales, token, d, store.values().given[g]);
                }
            }
}

}  // namespace qk::attention
