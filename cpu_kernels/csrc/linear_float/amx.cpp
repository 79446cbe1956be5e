#include <algorithm>
#include <cstring>
#include <span>

#include "linear/tile_rows.h"
#include "linear_float/linear_float.h"
#include "scratch.h"
#include "simd/open_avx512_bf16.h"

namespace qk::linear_float::amx {

using namespace linear;
#include "linear/tile_product.inl"
#include "linear_float/kernels.inl"
#include "linear_float/lanes_avx512.inl"
#include "linear_float/round_f16.inl"

namespace {

// tdpbf16ps takes subnormal numbers for zeros. It sums even and odd k apart within a tile of 32.
struct Bf16 : Lanes {
    template <int sums, int x, int weights>
    static void multiply() {
        tile_dot_bf16<sums, x, weights>();
    }
    static Sum sum_of(const std::byte* row, Sum) { return _mm512_load_ps(row); }
};

// Panels of f16, of which two are rounded to bfloat16 tiles at a time.
class RoundedTiles {
public:
    explicit RoundedTiles(const Panels& panels) : panels_(panels) {}

    int64_t num_tiles() const { return (panels_.num_groups + 31) / 32; }
    int64_t count_at(int64_t k) const { return std::min(k_block_tiles, num_tiles() - k); }
    void begin(int64_t panel, int64_t panels, int64_t k, int64_t count) {
        buffer_ ^= 1, panel_ = panel, k_ = k, count_ = count, unit_ = 0, num_units_ = panels * count;
    }
    // One unit is one tile.
    int64_t num_units() const { return num_units_; }
    void make_unit() {
        const int64_t panel = unit_ / count_, tile = unit_ % count_, k = (k_ + tile) * 32;
        round_pairs(panels_.at(panel_ + panel) + k * 2 * panel_rows, std::min<int64_t>(32, panels_.num_groups - k), 16,
                    tiles_[buffer_][panel] + tile * tile_bytes);
        unit_++;
    }
    TilePanels tiles() const { return {tiles_[buffer_][0], sizeof tiles_[0][0]}; }
    std::span<const std::byte> bytes(int64_t panel, int64_t k, int64_t count) const {
        const int64_t row_bytes = 2 * panel_rows, size = std::min<int64_t>(count * 32, panels_.num_groups - k * 32);
        return {panels_.at(panel) + k * 32 * row_bytes, static_cast<size_t>(size * row_bytes)};
    }

private:
    const Panels& panels_;
    int buffer_ = 0;
    int64_t panel_ = 0, k_ = 0, count_ = 1, unit_ = 0, num_units_ = 0;
    alignas(64) std::byte tiles_[2][2][k_block_tiles * tile_bytes];
};

}  // namespace

Isa multiply_bf16(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    StoredTiles tiles(weight);
    TileProduct<Bf16, StoredTiles, Stored<Bf16>>(tiles, weight.num_rows, tiles.num_tiles(), x, {target})
        .run(begin, end);
    return Isa::amx;
}

Isa multiply_f16(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    RoundedTiles tiles(weight);
    TileProduct<Bf16, RoundedTiles, Stored<Bf16>>(tiles, weight.num_rows, tiles.num_tiles(), x, {target})
        .run(begin, end);
    return Isa::amx;
}

}  // namespace qk::linear_float::amx

#include "simd/close.h"
