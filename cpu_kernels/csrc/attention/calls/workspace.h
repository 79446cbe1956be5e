// How tokens are split into tasks, and the memory per row of a task.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "attention/kernels.h"

namespace qk::attention {

// Tokens that are summed by themselves, and in decoding a task: 1024 x 2 x 128 bytes (float16, D = 64) take 15 us at
// 18 GB/s per core. Half as many would cost a tenth more, as a task's first keys are waited for; twice as many would
// leave the threads too few: 4096 tokens of 8 kv heads are 32 tasks. Fixed, counted from the first token, and the same
// for many queries as for one, so that a query's result depends on the tokens that it sees alone.
inline constexpr int64_t split_tokens = 1024;
static_assert(split_tokens % chunk_tokens == 0);

// Rows of a task in prefill: their queries and sums (D = 64: 32 KiB) and a chunk of float32 (64 KiB) stay in the L2.
inline constexpr int64_t prefill_rows = 64;

// The same for rows that tiles multiply, which share the work of making tiles of keys and values.
inline constexpr int64_t most_tiled_rows = 512;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Memory per row, with room for a whole number of tiles; zeros in rows that are not there. Maxima, sums and outputs
// of `stretches` of tokens follow each other, one stretch after the other.
class Workspace {
public:
    Rows rows(const Layout& layout, int64_t count, int64_t stretches, bool in_tiles) {
        const int64_t tile = in_tiles ? tile_rows : max_tile;
        const int64_t padded = ceil_div(count, tile) * tile, size = padded * layout.head_dim;
        const int64_t groups = layout.groups(), values = in_tiles ? 0 : size;
        floats_.assign(static_cast<size_t>(values + padded * (1 + groups) + stretches * (2 * padded + size)), 0.0f);
        codes_.assign(static_cast<size_t>(size), 0);
        bounds_.assign(static_cast<size_t>(2 * padded), 0);
        float* next = floats_.data();
        const auto take = [&next](int64_t floats) { return std::exchange(next, next + floats); };
        Rows rows{};
        rows.count = static_cast<int>(count);
        rows.in_tiles = in_tiles;
        rows.queries = {in_tiles ? nullptr : take(values), codes_.data(), take(padded), take(padded * groups)};
        rows.begin = bounds_.data();
        rows.end = bounds_.data() + padded;
        rows.max = take(stretches * padded);
        rows.sum = take(stretches * padded);
        rows.out = take(stretches * size);
        std::fill_n(rows.max, stretches * padded, -std::numeric_limits<float>::infinity());
        return rows;
    }
    int64_t padded() const { return static_cast<int64_t>(bounds_.size()) / 2; }
    int64_t* begin() { return bounds_.data(); }
    int64_t* end() { return bounds_.data() + bounds_.size() / 2; }

private:
    std::vector<float> floats_;
    std::vector<int16_t> codes_;
    std::vector<int64_t> bounds_;
};

}  // namespace qk::attention
