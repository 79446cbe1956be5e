#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "linear/block.h"
#include "simd/open_avx2.h"

namespace qk::linear::avx2 {
namespace {
#include "linear/lanes_avx2.inl"
#include "linear/accumulate.inl"

// Registers at two panels: for 5 tokens 10 accumulators, 2 groups, the activations, a product and ones: 15 of 16. The
// outputs stay in the L1. Halves have two sums each: at 4 tokens Q6_K takes 0.97 of the time at 5.
constexpr int tile_tokens(Sums sums, int) { return sums == Sums::half ? 4 : 5; }

#include "linear/tile/place.inl"
#include "linear/tile/pairs.inl"
#include "linear/tile.inl"
}  // namespace

#define QK_DEFINE(sums, bits)                                                                            \
    Isa tile_##sums##_##bits(std::span<const Stretch> stretches, const std::byte* x, size_t token_bytes, \
                             int64_t num_tokens, const Outputs& out) {                                   \
        return tile<Sums::sums, bits>(stretches, x, token_bytes, num_tokens, out);                       \
    }
QK_WIDTHS(QK_DEFINE)
#undef QK_DEFINE
}  // namespace qk::linear::avx2

#include "simd/close.h"
