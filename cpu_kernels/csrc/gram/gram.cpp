#include "gram/gram.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "buffer.h"
#include "thread_pool.h"

namespace qk::gram {
namespace {

constexpr Impl<Kernels> impls[] = {
#if QK_X86_KERNELS
    {Isa::avx512_bf16, bit(Isa::avx512) | bit(Isa::avx512_bf16), {avx512_bf16::add_block}},
#endif
    QK_IMPLS(QK_KERNEL, add_block),
};

// To the nearest, ties to the even one. NaN stays NaN: its payload may be in the bits that are cut off.
uint32_t bf16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

// Columns [first, first + panel) of x as words [pairs, panel]; 0 beyond the last token or column
void pack(const float* x, int64_t num_tokens, int64_t row_size, int64_t first, uint32_t* words) {
    const int64_t columns = std::min<int64_t>(panel, row_size - first);
    for (int64_t t = 0; t < num_tokens; t += 2) {
        const float* even = x + t * row_size + first;
        uint32_t* pair = words + t / 2 * panel;
        if (t + 1 < num_tokens)
            for (int64_t c = 0; c < columns; c++) pair[c] = bf16(even[c]) | bf16(even[row_size + c]) << 16;
        else
            for (int64_t c = 0; c < columns; c++) pair[c] = bf16(even[c]);
        std::fill(pair + columns, pair + panel, 0u);
    }
}

}  // namespace

std::span<const Impl<Kernels>> table() { return impls; }

Isa add(const float* x, int64_t num_tokens, int64_t row_size, float* gram, const Impl<Kernels>& impl) {
    const int64_t num_pairs = (num_tokens + 1) / 2, num_panels = (row_size + panel - 1) / panel;
    Buffer buffer(static_cast<size_t>(num_panels * num_pairs * panel) * sizeof(uint32_t));
    const auto words = [&](int64_t i) { return reinterpret_cast<uint32_t*>(buffer.data()) + i * num_pairs * panel; };
    const auto pool = thread_pool();
    pool->run(num_panels, [&](int64_t i) { pack(x, num_tokens, row_size, i * panel, words(i)); });
    std::atomic<Isa> ran{impl.isa};
    pool->run(num_panels * (num_panels + 1) / 2, [&](int64_t task) {
        int64_t right = 0;  // task = right * (right + 1) / 2 + left: neighbours share the right panel
        while ((right + 1) * (right + 2) / 2 <= task) right++;
        const int64_t left = task - right * (right + 1) / 2;
        alignas(64) float sums[panel * panel] = {};
        ran = impl.kernels.add_block(words(left), words(right), num_pairs, sums);
        const int64_t rows = std::min<int64_t>(panel, row_size - left * panel);
        const int64_t columns = std::min<int64_t>(panel, row_size - right * panel);
        for (int64_t r = 0; r < rows; r++) {
            float* out = gram + (left * panel + r) * row_size + right * panel;
            for (int64_t c = 0; c < columns; c++) out[c] += sums[r * panel + c];
        }
    });
    return ran;
}

}  // namespace qk::gram
