#include <cstddef>
#include <cstdint>
#include <limits>

#include "attention/attention.h"
#include "attention/store/residual.h"
#include "simd/headers.h"

namespace qk::attention {
namespace {

#include "attention/lanes_scalar.inl"
#include "attention/kernels/codes.inl"

// Element e of lane `lane` of a block: a byte, or some of its bits
uint32_t lane_code(Format format, const std::byte* codes, int64_t lane, int64_t e) {
    const auto byte = static_cast<uint32_t>(codes[element_byte(format, lane, e)]);
    return byte >> element_shift(format, e) & ((1u << element_bits(format)) - 1);
}

// Element i of those in lanes i / elements * stride + offset, before any scale
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
        const int64_t group = layout.format == Format::int8 ? 0 : d / int4_group;
        const auto* halves = reinterpret_cast<const uint16_t*>(scales) + group * 2 * block_tokens + token;
        return code * half_to_float(halves[0]) + half_to_float(halves[block_tokens]);
    }
    return code * (layout.has_token_scales() ? reinterpret_cast<const float*>(scales)[token] : given);
}

float half_at(const std::byte* halves, int64_t d) {
    return half_to_float(reinterpret_cast<const uint16_t*>(halves)[d]);
}

// One token of one head of a store's blocks.
void read_token(const Store& store, const Sequences& sequences, int64_t b, int64_t g, int64_t slot, float* k,
                float* v) {
    const Layout& layout = store.layout();
    const int64_t token = slot % block_tokens, group = slot / group_tokens * group_tokens;
    const auto block_of = [&](const Side& side, int64_t at) {
        const auto [page, index] = sequences.locate(b, at);
        return side.block(page, g, index, store.per_tensor());
    };
    const Block key = block_of(store.keys(), slot), value = block_of(store.values(), slot);
    for (int64_t d = 0; d < layout.head_dim; d++) {
        const float key_code = code_at(layout.format, key.codes, d, block_tokens, token);
        const float value_code = code_at(layout.format, value.codes, token, layout.head_dim, d);
        v[d] = value_of(layout, value_code, value.scales, token, d, store.values().given[g]);
        if (!is_kivi(layout.format)) {
            k[d] = value_of(layout, key_code, key.scales, token, d, store.keys().given[g]);
        } else {
            const std::byte* scales = block_of(store.keys(), group).scales;
            const std::byte* minima = block_of(store.keys(), group + block_tokens).scales;
            k[d] = key_code * half_at(scales, d) + half_at(minima, d);
        }
    }
}

}  // namespace

void read(const Store& store, const Sequences& sequences, const Heads<float>& k, const Heads<float>& v, int64_t first) {
    for (int64_t b = 0; b < k.batch; b++)
        for (int64_t g = 0; g < k.heads; g++)
            for (int64_t t = 0; t < k.tokens; t++) {
                const bool is_recent = first + t >= store.layout().num_encoded(sequences.end(b, g));
                const Store& from = is_recent ? *store.ring() : store;
                read_token(from, is_recent ? in_ring(sequences) : sequences, b, g, first + t, k.at(b, g, t),
                           v.at(b, g, t));
            }
}

}  // namespace qk::attention
