#include <cstdint>

#include "roofline/roofline.h"

namespace qk::roofline::amx {
namespace {
#include "simd/tiles.inl"
}

// Four independent sums: a product of full tiles takes 16 cycles and its result 52, so three of them already overlap.
constexpr int chains = 4;

// As many tiles as 16 chains of a vector instruction take cycles for, twice: a task of similar length on a core with
// both, and few enough for an emulator. Sums are in tiles 0 to 3, operands in 4 to 7.
template <class Round>
int64_t run_rounds(int64_t repeats, const Round& round) {
    const uint8_t operand[16 * 64] = {};
    TileConfig config;
    for (int tile = 0; tile < 8; tile++) config.set(tile, 16, 64);
    const Tiles tiles(config);
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
    tile_load<4>(operand, 64);
    tile_load<5>(operand, 64);
    tile_load<6>(operand, 64);
    tile_load<7>(operand, 64);
    const int64_t rounds = repeats / 16;
    for (int64_t i = 0; i < rounds; i++) round();
    return rounds * chains;
}

int64_t int8_chains(int64_t repeats) {
    return 16 * 16 * 64 * 2 * run_rounds(repeats, [] {
               tile_dot_int8_uint8<0, 4, 6>();
               tile_dot_int8_uint8<1, 4, 7>();
               tile_dot_int8_uint8<2, 5, 6>();
               tile_dot_int8_uint8<3, 5, 7>();
           });
}

int64_t bf16_chains(int64_t repeats) {
    return 16 * 16 * 32 * 2 * run_rounds(repeats, [] {
               tile_dot_bf16<0, 4, 6>();
               tile_dot_bf16<1, 4, 7>();
               tile_dot_bf16<2, 5, 6>();
               tile_dot_bf16<3, 5, 7>();
           });
}

}  // namespace qk::roofline::amx
