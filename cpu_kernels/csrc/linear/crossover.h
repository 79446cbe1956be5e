// Which path runs, as data.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "linear/block.h"

namespace qk::linear {

inline Path parse_path(std::string_view name) {
    if (name == "direct") return Path::direct;
    if (name == "tile") return Path::tile;
    if (name == "int8x256") return Path::int8x256;
    throw std::invalid_argument("path=" + std::string(name) + ": expected direct, tile or, of K-quants, int8x256");
}

// For the formats that are multiplied as stored on every path.
inline void require_stored_weights(Path path, std::string_view format) {
    if (path == Path::int8x256)
        throw std::invalid_argument("path=int8x256: " + std::string(format) + " has direct and tile alone");
}

// QBENCH_LINEAR_PATH=direct|tile, which all formats have; QBENCH_K_QUANT_PRODUCTS asks for int8x256. Reads the
// environment, so call it where nothing writes it (with the GIL held).
inline Path forced_path() {
    const char* asked = std::getenv("QBENCH_LINEAR_PATH");
    const std::string_view forced = asked ? asked : "";
    if (forced.empty()) return Path::automatic;
    if (forced == "direct") return Path::direct;
    if (forced == "tile") return Path::tile;
    throw std::invalid_argument("QBENCH_LINEAR_PATH=" + std::string(forced) + ": expected direct or tile");
}

struct Crossover {
    std::string_view format;  // CodeFormat::name
    int64_t direct_tokens;    // up to so many tokens the direct path is the faster one
};

// One thread of an AVX-512 VNNI machine, K = 2048, N = 2048, weights from memory, both paths at 8, 16, 24 and 32
// tokens. The direct path unpacks once every 8 tokens, the tile path once, and then stores the codes, loads them for 6
// tokens x 2 panels and fetches the next ones: so what counts is the price of unpacking. Codes of one plane need a
// shift and a mask, and are as good unpacked again for a few times 8 tokens; those of 8 bits fill all that is loaded.
inline constexpr Crossover crossovers[] = {
    {"q4_0", 24}, {"q4_1", 32}, {"q5_0", 8}, {"q5_1", 16}, {"q8_0", 4}, {"q2_k", 16}, {"q3_k", 16}, {"q4_k", 32},
    {"q5_k", 16}, {"q6_k", 4}, {"iq4_nl", 16}, {"iq4_xs", 16}, {"w2", 32}, {"w3", 8}, {"w4", 24}, {"w8", 4},
    {"w2-asym", 32}, {"w3-asym", 16}, {"w4-asym", 24}, {"w8-asym", 4},
};

inline int64_t most_direct_tokens(const CodeFormat& format) {
    for (const Crossover& crossover : crossovers)
        if (format.name == crossover.format) return crossover.direct_tokens;
    throw std::logic_error(format.name + " has no crossover");
}

// Where there are tile instructions, theirs is the faster path for all but a few tokens.
inline constexpr int64_t most_direct_tokens_amx = 4;

inline int64_t most_direct_tokens(int64_t of_format, Isa isa) {
    return isa == Isa::amx ? most_direct_tokens_amx : of_format;
}

}  // namespace qk::linear
