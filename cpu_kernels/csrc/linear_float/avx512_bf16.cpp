#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "buffer.h"
#include "linear_float/linear_float.h"
#include "simd/open_avx512_bf16.h"

namespace qk::linear_float::avx512_bf16 {

constexpr Isa this_isa = Isa::avx512_bf16;

using namespace linear;
#include "linear/dense_tile.inl"
#include "linear_float/kernels.inl"
#include "linear_float/lanes_avx512.inl"
#include "linear_float/round_f16.inl"

// vdpbf16ps takes subnormal numbers for zeros.
struct Bf16 : Lanes {
    using Weights = __m512bh;
    using Word = __m512bh;
    static constexpr int vector_bytes = 64;

    static Weights weights(const std::byte* p) { return reinterpret_cast<__m512bh>(_mm512_load_si512(p)); }
    static Word word(const std::byte* p) {
        int32_t pair;
        __builtin_memcpy(&pair, p, 4);
        return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
    }
    static Sum add(Sum sum, Weights weights, Word word) { return _mm512_dpbf16_ps(sum, weights, word); }
    // One product a cycle with a latency of 6 wants 6 sums or more; 24 sums, 2 weights and the activations stay in 32
    // registers. 4 panels: few tokens have few sums.
    static constexpr int shapes[] = {6, 12, 12};
};

Isa multiply_bf16(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    multiply_panels<Bf16>(weight, begin, end, x, Stored<Bf16>{target});
    return this_isa;
}

// Two panels at a time are rounded to the L2, 128 KiB at K = 2048, and multiplied with all tokens.
Isa multiply_f16(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    constexpr int64_t width = 2;
    const int64_t num_pairs = (weight.num_groups + 1) / 2;
    thread_local Buffer buffer;
    const auto needed = static_cast<size_t>(width * num_pairs * 64);
    if (buffer.size() < needed) buffer = Buffer(needed);
    auto* rounded = reinterpret_cast<std::byte*>(buffer.data());
    for (int64_t panel = begin; panel < end; panel += width) {
        const int64_t count = std::min(width, end - panel);
        for (int64_t i = 0; i < count; i++)
            round_pairs(weight.at(panel + i), weight.num_groups, num_pairs, rounded + i * num_pairs * 64);
        const int64_t row = panel * panel_rows;
        const Panels part{rounded, num_pairs * 64, num_pairs, weight.num_rows - row};
        const Target there{target.y + row, target.y_stride, target.add};
        multiply_panels<Bf16>(part, 0, count, x, Stored<Bf16>{there});
    }
    return this_isa;
}

}  // namespace qk::linear_float::avx512_bf16

#include "simd/close.h"
