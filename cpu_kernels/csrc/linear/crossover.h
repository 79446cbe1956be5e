// Which path runs, as data.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "linear/block.h"

namespace qk::linear {

inline Path parse_path(std::string_view name, std::string_view asked_by) {
    if (name == "direct") return Path::direct;
    if (name == "tile") return Path::tile;
    if (name == "int8x256") return Path::int8x256;
    throw std::invalid_argument(std::string(asked_by) + "=" + std::string(name) + ": expected direct or tile");
}

// QBENCH_LINEAR_PATH=direct|tile. Reads the environment, so call it where nothing writes it (with the GIL held).
inline Path forced_path() {
    const char* forced = std::getenv("QBENCH_LINEAR_PATH");
    return forced && *forced ? parse_path(forced, "QBENCH_LINEAR_PATH") : Path::automatic;
}

struct Crossover {
    std::string_view format;  // CodeFormat::name
    int64_t direct_tokens;    // up to so many tokens the direct path is the faster one
};

// One thread of an AVX-512 VNNI machine, K = 2048, N = 1536, weights from memory, both paths at 4 to 64 tokens. The
// direct path unpacks once every 4 tokens, the tile path once, and then loads the codes for 6 tokens x 2 panels and
// fetches the next ones: so what counts is the price of unpacking. Codes of one plane with a minimum (q4_1, q4_k, w2)
// need nothing but a shift and a mask, and are as good unpacked again for a few times 4 tokens.
inline constexpr Crossover crossovers[] = {
    {"q4_0", 4}, {"q4_1", 20}, {"q5_0", 4}, {"q5_1", 4}, {"q8_0", 4}, {"q2_k", 8}, {"q3_k", 4}, {"q4_k", 16},
    {"q5_k", 4}, {"q6_k", 4}, {"iq4_nl", 4}, {"iq4_xs", 4}, {"w2", 16}, {"w3", 4}, {"w4", 4}, {"w8", 4},
    {"w2-asym", 16}, {"w3-asym", 4}, {"w4-asym", 4}, {"w8-asym", 4},
};

inline int64_t most_direct_tokens(const CodeFormat& format) {
    for (const Crossover& crossover : crossovers)
        if (format.name == crossover.format) return crossover.direct_tokens;
    throw std::logic_error(format.name + " has no crossover");
}

// Where there are tile instructions, theirs is the faster path but for the tokens of one direct product.
inline int64_t most_direct_tokens(int64_t of_format, Isa isa) {
    return isa == Isa::amx ? direct_tokens : of_format;
}

}  // namespace qk::linear
