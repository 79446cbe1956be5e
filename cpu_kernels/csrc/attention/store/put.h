// The places of a token's codes and scales in a block.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "attention/store/layout.h"

namespace qk::attention {

// Codes of one token and head, one per byte for integers, and its scales.
struct Encoded {
    std::vector<std::byte> codes, scales;

    explicit Encoded(const Layout& layout)
        : codes(static_cast<size_t>(is_integer(layout.format) ? layout.head_dim : layout.row_bytes())),
          scales(static_cast<size_t>(std::max<int64_t>(4, 4 * layout.groups()))) {}
};

template <class Code>
inline void scatter(const std::byte* from, int64_t size, int64_t token, std::byte* block) {
    const auto* codes = reinterpret_cast<const Code*>(from);
    auto* to = reinterpret_cast<Code*>(block) + token;
    for (int64_t d = 0; d < size; d++, to += block_tokens) *to = codes[d];
}

// One code into its place in a lane; codes of other tokens or channels in the same byte stay.
template <Format format>
inline void put_code(uint8_t code, int64_t lane, int64_t element, uint8_t* lanes) {
    uint8_t& byte = lanes[element_byte(format, lane, element)];
    const int shift = element_shift(format, element), others = ~(((1 << element_bits(format)) - 1) << shift);
    byte = static_cast<uint8_t>((byte & others) | code << shift);
}

// All codes of a lane.
template <Format format>
inline void put_lane(const uint8_t* codes, int64_t lane, uint8_t* lanes) {
    constexpr int elements = lane_elements(format);
    if constexpr (is_float8(format)) {
        for (int64_t e = 0; e < elements; e++) put_code<format>(codes[e], lane, e, lanes);
    } else {
        uint32_t bits = 0;
        for (int64_t e = 0; e < elements; e++)
            bits |= uint32_t{codes[e]} << (8 * element_byte(format, 0, e) + element_shift(format, e));
        std::memcpy(lanes + lane * lane_bytes, &bits, sizeof bits);
    }
}

// Calls put<format>() with a format known to the compiler whose lanes are like those of `format`.
template <class Put>
inline void with_lanes_of(Format format, const Put& put) {
    if (is_float8(format)) return put.template operator()<Format::e4m3>();
    if (format == Format::int8) return put.template operator()<Format::int8>();
    if (format == Format::kivi2) return put.template operator()<Format::kivi2>();
    put.template operator()<Format::int4>();
}

inline void put_key(const Layout& layout, const Encoded& encoded, int64_t token, std::byte* block) {
    const int elements = lane_elements(layout.format);
    if (elements == 1) {
        if (layout.format == Format::f32)
            scatter<uint32_t>(encoded.codes.data(), layout.head_dim, token, block);
        else
            scatter<uint16_t>(encoded.codes.data(), layout.head_dim, token, block);
        return;
    }
    const auto* codes = reinterpret_cast<const uint8_t*>(encoded.codes.data());
    with_lanes_of(layout.format, [&]<Format format> {
        auto* to = reinterpret_cast<uint8_t*>(block);
        constexpr int step = lane_elements(format);
        for (int64_t d = 0; d < layout.head_dim; d += step, to += lane_bytes * block_tokens)
            put_lane<format>(codes + d, token, to);
    });
}

inline void put_value(const Layout& layout, const Encoded& encoded, int64_t token, std::byte* block) {
    const int elements = lane_elements(layout.format);
    if (elements == 1) {
        std::memcpy(block + token * layout.row_bytes(), encoded.codes.data(), static_cast<size_t>(layout.row_bytes()));
        return;
    }
    const int64_t element = token % elements, size = layout.head_dim;
    const auto* codes = reinterpret_cast<const uint8_t*>(encoded.codes.data());
    auto* to = reinterpret_cast<uint8_t*>(block) + token / elements * size * lane_bytes;
    with_lanes_of(layout.format, [&]<Format format> {
        for (int64_t d = 0; d < size; d++) put_code<format>(codes[d], d, element, to);
    });
}

inline void put_scales(const Layout& layout, const Encoded& encoded, int64_t token, std::byte* block) {
    if (is_float8(layout.format) && layout.has_token_scales())
        std::memcpy(block + 4 * token, encoded.scales.data(), 4);
    else
        scatter<uint16_t>(encoded.scales.data(), 2 * layout.groups(), token, block);
}

}  // namespace qk::attention
