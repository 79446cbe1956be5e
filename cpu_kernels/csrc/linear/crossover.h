// Which path runs, as data.
#pragma once

#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "linear/block.h"

namespace qk::linear {

inline const char* name_of(Path path) {
    return path == Path::direct ? "direct" : path == Path::int8x256 ? "int8x256" : path == Path::bf16 ? "bf16" : "tile";
}

inline Path parse_path(std::string_view name) {
    for (const Path path : {Path::direct, Path::tile, Path::int8x256, Path::bf16})
        if (name == name_of(path)) return path;
    throw std::invalid_argument("path=" + std::string(name) +
                                ": expected direct, tile, bf16 or, of K-quants and trellis codes, int8x256");
}

// QBENCH_LINEAR_PATH=direct|tile, which all formats have, or bf16; QBENCH_K_QUANT_COMPUTE asks for int8x256. Reads the
// environment, so call it when nothing writes it (with the GIL held).
inline Path forced_path() {
    const char* asked = std::getenv("QBENCH_LINEAR_PATH");
    const std::string_view forced = asked ? asked : "";
    if (forced.empty()) return Path::automatic;
    if (forced == "direct") return Path::direct;
    if (forced == "tile") return Path::tile;
    if (forced == "bf16") return Path::bf16;
    throw std::invalid_argument("QBENCH_LINEAR_PATH=" + std::string(forced) + ": expected direct, tile or bf16");
}

// For formats without a rounding to 8 bits.
inline void require_no_int8(Path path, std::string_view format) {
    if (path == Path::int8x256)
        throw std::invalid_argument("path=int8x256: only K-quants and trellis codes have it, not " +
                                    std::string(format));
}

// For the formats that are multiplied as stored on every path: the path that they take for one that is forced.
inline Path stored_path(Path path, std::string_view format) {
    require_no_int8(path, format);
    if (path == Path::bf16)
        throw std::invalid_argument("path=bf16: only codes in blocks or groups, and trellis codes, have it, not " +
                                    std::string(format));
    if (path != Path::automatic) return path;
    const Path forced = forced_path();
    return forced == Path::bf16 ? Path::automatic : forced;
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

// From this number of tokens on bfloat16 tiles are faster than AVX-512 VNNI. Time of its best path over that of
// tiles, one thread of Granite Rapids, 8192 x 2048:
//
//     tokens        16    20    24    32
//     q4_0        0.85  0.86  1.03  1.32
//     q4_k        0.97  0.95  1.05  1.36
//     q6_k        0.90  0.92  1.06  1.30
//     w4g128      0.94  0.91  1.04  1.39
//     q2_k        0.85  0.83  1.03  1.27
//     tq1_0       0.79  0.84  0.97  1.23
//     q8_0        0.73  0.75  0.86  1.10
//     w8          0.66  0.70  0.82  1.05
//     iq4_xs      0.76  0.74  0.84  1.12
//     iq2_xs      0.84  0.88  0.97  1.21
//
// Codes of 8 bits take two operations more than narrower ones, and points of a lattice are looked up. Trellis codes are
// hashed: least_trellis_bf16_tokens.
inline constexpr int64_t least_bf16_tokens = 28;

// The same for int8 with a scale per row, which is stored as tiles take it: only a tile that few tokens fill is lost time.
// Granite Rapids, one thread, 8192 x 2048, time of AVX-512 VNNI over that of tiles at 1, 12 and 16 tokens: 0.75, 0.88 and
// 1.07. Both give the same bits. For bf16 they differ, so it takes tiles for any number of tokens; there the ratios
// at 1, 4 and 8 tokens are 0.73, 0.80 and 1.46.
inline constexpr int64_t least_int8_tile_tokens = 14;

// The row of an op's table for a number of tokens: tiles, if they come first, from least_tokens on.
template <class Kernels>
const Impl<Kernels>& choose_tiles(std::string_view op, std::span<const Impl<Kernels>> table, int64_t num_tokens,
                                  int64_t least_tokens, std::optional<std::string_view> isa) {
    const auto* impl = &qk::choose(op, table, isa);
    if (!isa && impl->isa == Isa::amx && num_tokens < least_tokens) impl++;
    return *impl;
}

// 256-bit registers multiply these in one pass. A second one would unpack every code again; the tile path stores them.
inline constexpr int64_t most_direct_tokens_256 = direct_tokens;

// The same for processors with AMX, whatever the instruction set that is chosen there: the points of formats were measured
// on Zen 5, which is faster in unpacking. One thread of Granite Rapids, N = 1024, K = 2048, time of the direct path over that
// of the tile at 6, 8, 12, 16 and 24 tokens: q4_0 0.94, 1.02, 1.16, 1.18, 1.28; q8_0 0.78, 0.84, 1.11, 1.11, 1.17; q4_k
// 0.85, 0.92, 1.06, 1.04, 1.15; q6_k 0.84, 1.04, 1.09, 1.26, 1.37; w4 0.98, 1.01, 1.19, 1.19, 1.32.
inline constexpr int64_t most_direct_tokens_amx = direct_tokens;

inline int64_t most_direct_tokens(int64_t of_format, Isa isa) {
    if (isa == Isa::avx2 || isa == Isa::avx_vnni) return most_direct_tokens_256;
    return detect() & bit(Isa::amx) ? most_direct_tokens_amx : of_format;
}

}  // namespace qk::linear
