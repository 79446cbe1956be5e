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

// One thread of an AVX-512 VNNI machine, K = N = 2048, both paths at 7 to 96 tokens. The direct path unpacks once every
// 4 tokens; the tile path once, and then it loads the codes for 6 tokens x 2 panels. So what counts is the price of
// unpacking: a nibble or a byte is cheap, and at up to 64 tokens as good as unpacked; each further plane of bits costs
// 8 times 2 operations a step. AVX2 and AVX-512 without VNNI have the same order and gain 10 % at most either way.
inline constexpr Crossover crossovers[] = {
    {"q4_0", 20}, {"q4_1", 64}, {"q5_0", 6}, {"q5_1", 14}, {"q8_0", 64}, {"q2_k", 8}, {"q3_k", 6}, {"q4_k", 32},
    {"q5_k", 12}, {"q6_k", 8}, {"iq4_nl", 20}, {"iq4_xs", 14}, {"w2", 20}, {"w3", 6}, {"w4", 24}, {"w8", 48},
    {"w2-asym", 20}, {"w3-asym", 6}, {"w4-asym", 20}, {"w8-asym", 32},
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
