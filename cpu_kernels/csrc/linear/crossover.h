// Which path runs, as data.
#pragma once

#include <cstdlib>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "linear/block.h"

namespace qk::linear {

inline Path parse_path(std::string_view name) {
    if (name == "direct") return Path::direct;
    if (name == "tile") return Path::tile;
    if (name == "int8x256") return Path::int8x256;
    throw std::invalid_argument("path=" + std::string(name) +
                                ": expected direct, tile or, of K-quants and trellis codes, int8x256");
}

// For the formats that are multiplied as stored on every path.
inline void require_stored_weights(Path path, std::string_view format) {
    if (path == Path::int8x256)
        throw std::invalid_argument("path=int8x256: " + std::string(format) + " has direct and tile alone");
}

// QBENCH_LINEAR_PATH=direct|tile, which all formats have; QBENCH_K_QUANT_COMPUTE asks for int8x256. Reads the
// environment, so call it when nothing writes it (with the GIL held).
inline Path forced_path() {
    const char* asked = std::getenv("QBENCH_LINEAR_PATH");
    const std::string_view forced = asked ? asked : "";
    if (forced.empty()) return Path::automatic;
    if (forced == "direct") return Path::direct;
    if (forced == "tile") return Path::tile;
    throw std::invalid_argument("QBENCH_LINEAR_PATH=" + std::string(forced) + ": expected direct or tile");
}

// QBENCH_K_QUANT_COMPUTE=exact: no codes are rounded to 8 bits; int8x256: all are, those too that were asked to be exact.
// Nothing if it is not set. Reads the environment, as forced_path does.
inline std::optional<bool> asked_rounding() {
    const char* asked = std::getenv("QBENCH_K_QUANT_COMPUTE");
    if (!asked || !*asked) return std::nullopt;
    if (std::string_view(asked) == "int8x256") return true;
    if (std::string_view(asked) == "exact") return false;
    throw std::runtime_error("QBENCH_K_QUANT_COMPUTE=" + std::string(asked) + ": expected int8x256 or exact");
}

// From so many tokens on the tile instructions of AMX are faster than AVX-512 VNNI. Their sums go through memory to be
// scaled, and a step with two scales has twice as many: those are never faster. Sapphire Rapids or later, one thread,
// K = N = 2048, VNNI's time over AMX's at 16, 64 and 256 tokens: spans 0.70 to 1.09, 0.91 to 1.16 and 1.07 to 1.21;
// steps 0.72 to 1.03, 0.91 to 1.06 and 1.02 to 1.09; halves 0.67 to 0.86, 0.70 to 0.73 and 0.76 to 0.77.
inline int64_t least_tokens_amx(Sums sums) {
    if (sums == Sums::half) return std::numeric_limits<int64_t>::max();
    return is_span(sums) ? 64 : 128;
}

// 256-bit registers multiply these in one pass. A second one would unpack every code again; the tile path stores them.
inline constexpr int64_t most_direct_tokens_256 = direct_tokens;

inline int64_t most_direct_tokens(int64_t of_format, Isa isa) {
    return isa == Isa::avx2 || isa == Isa::avx_vnni ? most_direct_tokens_256 : of_format;
}

}  // namespace qk::linear
