#include <algorithm>
#include <array>
#include <utility>

#include "buffer.h"
#include "linear_float/linear_float.h"
// All includes before the region, so that no header code gets these instructions.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")

namespace qk::linear_float::avx512_bf16 {

using namespace linear;
#include "linear/dense_tile.inl"
#include "linear_float/kernels.inl"
#include "linear_float/lanes_avx512.inl"

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
    return Isa::avx512_bf16;
}

// A panel of f16 as the panel of bf16 that is nearest: pairs of k, the last one padded.
static void round_panel(const std::byte* f16, int64_t row_size, std::byte* bf16) {
    // Word 2 i of the result is row i of the even k, word 2 i + 1 that of the odd k, which the conversion put 16 words
    // further.
    alignas(64) uint16_t order[32];
    for (int i = 0; i < 16; i++) order[2 * i] = static_cast<uint16_t>(i), order[2 * i + 1] = static_cast<uint16_t>(16 + i);
    const __m512i interleave = _mm512_load_si512(order);
    for (int64_t k = 0; k < row_size; k += 2, f16 += 64, bf16 += 64) {
        const __m512 even = _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(f16)));
        const __m512 odd = k + 1 < row_size
                               ? _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(f16 + 32)))
                               : _mm512_setzero_ps();
        const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
        _mm512_store_si512(bf16, _mm512_permutexvar_epi16(interleave, both));
    }
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
            round_panel(weight.at(panel + i), weight.num_groups, rounded + i * num_pairs * 64);
        const int64_t row = panel * panel_rows;
        const Panels part{rounded, num_pairs * 64, num_pairs, weight.num_rows - row};
        const Target there{target.y + row, target.y_stride, target.add};
        multiply_panels<Bf16>(part, 0, count, x, Stored<Bf16>{there});
    }
    return Isa::avx512_bf16;
}

}  // namespace qk::linear_float::avx512_bf16

#pragma GCC pop_options
