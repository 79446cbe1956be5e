#include <algorithm>
#include <cstring>

#include "buffer.h"
#include "linear_float/linear_float.h"
#include "simd/open_avx512_bf16.h"

namespace qk::linear_float::amx {

using namespace linear;
namespace {
#include "amx/tiles.inl"
}
#include "linear/dense_tile_amx.inl"
#include "linear_float/kernels.inl"
#include "linear_float/lanes_avx512.inl"
#include "linear_float/rounded_f16.inl"

// tdpbf16ps takes subnormal numbers for zeros. It sums even and odd k apart within a tile of 32.
struct Bf16 : Lanes {
    template <int sums, int x, int weights>
    static void multiply() {
        tile_dot_bf16<sums, x, weights>();
    }
    static Sum sum_of(const std::byte* row, Sum) { return _mm512_load_ps(row); }
};

Isa multiply_bf16(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    multiply_panels<Bf16>(weight, begin, end, x, Stored<Bf16>{target});
    return Isa::amx;
}

// 16 pairs of k are a tile.
Isa multiply_f16(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    multiply_rounded<Bf16, 16>(weight, begin, end, x, target);
    return Isa::amx;
}

}  // namespace qk::linear_float::amx

#include "simd/close.h"
