#include <algorithm>
#include <cstring>

#include "buffer.h"
#include "linear_float/linear_float.h"
#include "simd/open_avx512_bf16.h"

namespace qk::linear_float::amx {

constexpr Isa this_isa = Isa::amx;
constexpr int64_t pair_multiple = 16;  // 16 pairs of k are a tile

using namespace linear;
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

#include "linear_float/rounded_products.inl"

}  // namespace qk::linear_float::amx

#include "simd/close.h"
