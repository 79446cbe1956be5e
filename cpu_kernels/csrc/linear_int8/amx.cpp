#include <algorithm>
#include <span>

#include "linear_int8/linear_int8.h"
#include "scratch.h"
#include "simd/open_avx512_vnni.h"

namespace qk::linear_int8::amx {

using namespace linear;
#include "linear/tile_product.inl"
#include "linear_int8/kernels.inl"
#include "linear_int8/lanes_avx512.inl"

namespace {

struct Dot : Lanes {
    template <int sums, int x, int weights>
    static void multiply() {
        tile_dot_int8_uint8<sums, x, weights>();
    }
    static Sum sum_of(const std::byte* row, Sum start) { return reinterpret_cast<Sum>(_mm512_load_si512(row)) + start; }
};

}  // namespace

Isa multiply(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    StoredTiles tiles(weight);
    const TileTails tails{x, TileRows(tiles.num_tiles(), sizeof(TokenTail))};
    TileProduct<Dot, StoredTiles, Scaled<Dot, TileTails>>(tiles, weight.num_rows, tiles.num_tiles(), x, {tails, target})
        .run(begin, end);
    return Isa::amx;
}

}  // namespace qk::linear_int8::amx

#include "simd/close.h"
