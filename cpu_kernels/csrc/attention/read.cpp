#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "attention/attention.h"
#include "half.h"

namespace qk::attention {
namespace {

#include "attention/lanes_scalar.inl"

#include "attention/codes.inl"

template <class Code>
float key_code(const std::byte* codes, int64_t token, int64_t d) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(codes);
    if constexpr (Code::format == Format::int8) return bytes[(d / 2 * block_tokens + token) * 2 + d % 2];
    if constexpr (Code::format == Format::int4) {
        const uint8_t both = bytes[(d / 4 * block_tokens + token) * 2 + d % 2];
        return static_cast<float>(d % 4 < 2 ? both & 15 : both >> 4);
    }
    if constexpr (!is_integer(Code::format)) return Code::at(codes, d * block_tokens + token);
}

template <class Code>
float value_code(const std::byte* codes, int64_t token, int64_t d, int64_t head_dim) {
    if constexpr (Code::format == Format::int4) {
        float group[int4_group];
        load_values<Code, int4_group>(codes, token * head_dim + d / int4_group * int4_group, group);
        return group[d % int4_group];
    } else {
        return Code::at(codes, token * head_dim + d);
    }
}

// A code's value: of float8 times the scale, of integers times the group's scale and plus its minimum.
float value_of(const Layout& layout, float code, const std::byte* scales, int64_t token, int64_t d, float given) {
    code = code * layout.code_unit() * layout.code_unit();
    if (is_integer(layout.format)) {
        const int64_t group = layout.format == Format::int4 ? d / int4_group : 0;
        const auto* halves = reinterpret_cast<const uint16_t*>(scales) + group * 2 * block_tokens + token;
        return code * half_to_float(halves[0]) + half_to_float(halves[block_tokens]);
    }
    return code * (layout.has_token_scales() ? reinterpret_cast<const float*>(scales)[token] : given);
}

template <class Code>
void read_as(const Store& store, const Sequences& sequences, const Heads<float>& k, const Heads<float>& v) {
    const Layout& layout = store.layout();
    for (int64_t b = 0; b < k.batch; b++)
        for (int64_t g = 0; g < k.heads; g++)
            for (int64_t t = 0; t < k.tokens; t++) {
                const auto [page, index] = sequences.locate(b, t);
                const int64_t token = t % block_tokens;
                const Block key = store.keys().block(page, g, index, store.per_tensor());
                const Block value = store.values().block(page, g, index, store.per_tensor());
                for (int64_t d = 0; d < layout.head_dim; d++) {
                    const float key_value = key_code<Code>(key.codes, token, d);
                    const float value_value = value_code<Code>(value.codes, token, d, layout.head_dim);
                    k.at(b, g, t)[d] = value_of(layout, key_value, key.scales, token, d, store.keys().given[g]);
                    v.at(b, g, t)[d] = value_of(layout, value_value, value.scales, token, d, store.values().given[g]);
                }
            }
}

}  // namespace

void read(const Store& store, const Sequences& sequences, const Heads<float>& k, const Heads<float>& v) {
    switch (store.layout().format) {
        case Format::f32: read_as<F32>(store, sequences, k, v); break;
        case Format::f16: read_as<F16>(store, sequences, k, v); break;
        case Format::bf16: read_as<Bf16>(store, sequences, k, v); break;
        case Format::e4m3: read_as<E4m3OrNan>(store, sequences, k, v); break;
        case Format::e5m2: read_as<E5m2>(store, sequences, k, v); break;
        case Format::int8: read_as<Int8>(store, sequences, k, v); break;
        case Format::int4: read_as<Int4>(store, sequences, k, v); break;
    }
}

}  // namespace qk::attention
