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

// Up to so many tokens the direct path is the faster one.
inline int64_t most_direct_tokens(const CodeFormat&, Isa) { return 4; }

}  // namespace qk::linear
