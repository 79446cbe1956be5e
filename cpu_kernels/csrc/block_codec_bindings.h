// Helpers of the bindings of encoders and decoders.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <span>
#include <string>

#include "block_codecs.h"

namespace qk {

// {format name: (block_size, block_bytes)}
template <class Kernel>
nanobind::dict formats_of(std::span<const BlockCodec<Kernel>> codecs) {
    nanobind::dict formats;
    for (const auto& codec : codecs) formats[codec.format] = nanobind::make_tuple(codec.block_size, codec.block_bytes);
    return formats;
}

template <class Kernel>
const Impl<Kernel>& chosen(const BlockCodec<Kernel>& codec, const std::optional<std::string>& isa) {
    return choose(codec.op, codec.table, isa ? std::optional<std::string_view>(*isa) : std::nullopt);
}

}  // namespace qk
