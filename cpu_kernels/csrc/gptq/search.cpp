#include <algorithm>
#include <limits>
#include <vector>

#include "gptq/gptq.h"
#include "thread_pool.h"

namespace qk::gptq {

#define QK_KERNELS(isa) {isa::subtract, isa::round, isa::grid_error}
static constexpr Impl<Kernels> impls[] = {QK_IMPLS(QK_KERNELS)};
#undef QK_KERNELS

std::span<const Impl<Kernels>> table() { return impls; }

void search(const float* values, int64_t num_rows, int64_t num_columns, const float* cost, const float* scale,
            const float* lowest, int64_t num_trials, float steps, int64_t* best, const Kernels& kernels) {
    thread_pool()->run((num_rows + tile - 1) / tile, [&](int64_t panel) {
        const int64_t first_row = panel * tile, rows = std::min<int64_t>(tile, num_rows - first_row);
        std::vector<float> columns(static_cast<size_t>(num_columns * tile));
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < num_columns; c++) columns[c * tile + r] = values[(first_row + r) * num_columns + c];
        float scales[tile], lows[tile], error[tile], least[tile];
        std::fill_n(scales, tile, 1.0f);
        std::fill_n(lows, tile, 0.0f);
        std::fill_n(least, tile, std::numeric_limits<float>::infinity());
        std::fill_n(best + first_row, rows, 0);
        for (int64_t trial = 0; trial < num_trials; trial++) {
            std::copy_n(scale + trial * num_rows + first_row, rows, scales);
            std::copy_n(lowest + trial * num_rows + first_row, rows, lows);
            kernels.grid_error(columns.data(), cost, num_columns, scales, lows, steps, error);
            for (int64_t r = 0; r < rows; r++)
                if (error[r] < least[r]) {
                    least[r] = error[r];
                    best[first_row + r] = trial;
                }
        }
    });
}

}  // namespace qk::gptq
