#include "blocks/blocks.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "thread_pool.h"

namespace qk::blocks {
namespace {

constexpr Impl<Kernels> impls[] = {QK_IMPLS(QK_KERNEL, score)};

// 1024 rows of 128 are 256 KiB: about 10 us of reading, many times the cost of a task.
constexpr int64_t rows_per_task = 1024;

// The largest scores of one query and head, as `best` has them; order: room for n numbers
void best_of(const float* scores, int64_t limit, int64_t count, int64_t most, std::vector<int64_t>& order,
             int64_t* best) {
    const auto key = [scores](int64_t i) {
        return std::isnan(scores[i]) ? std::numeric_limits<float>::infinity() : scores[i];
    };
    const auto precedes = [key](int64_t a, int64_t b) { return key(a) > key(b) || (key(a) == key(b) && a < b); };
    order.resize(static_cast<size_t>(limit));
    std::iota(order.begin(), order.end(), int64_t{0});
    if (count < limit) std::nth_element(order.begin(), order.begin() + count, order.end(), precedes);
    std::sort(order.begin(), order.begin() + count);
    std::copy_n(order.begin(), count, best);
    std::fill(best + count, best + most, int64_t{-1});
}

}  // namespace

std::span<const Impl<Kernels>> table() { return impls; }

Isa score(const Rows& rows, const float* vectors, int64_t queries, float* scores, const Impl<Kernels>& impl) {
    const int64_t runs = (rows.num_rows + rows_per_task - 1) / rows_per_task;
    std::atomic<Isa> ran{impl.isa};
    thread_pool()->run(queries * rows.heads * runs, [&](int64_t task) {
        const int64_t vector = task / runs, head = vector % rows.heads, first = task % runs * rows_per_task;
        const int64_t count = std::min(rows_per_task, rows.num_rows - first);
        ran = impl.kernels.score(rows.data + (head * rows.room + first) * rows.size, count, rows.size,
                                 vectors + vector * rows.size, scores + vector * rows.num_rows + first);
    });
    return ran;
}

void best(const float* scores, int64_t queries, int64_t heads, int64_t num_rows, const int64_t* limits,
          const int64_t* counts, int64_t most, int64_t* best) {
    thread_pool()->run(queries * heads, [&](int64_t task) {
        thread_local std::vector<int64_t> order;
        best_of(scores + task * num_rows, limits[task / heads], counts[task / heads], most, order, best + task * most);
    });
}

}  // namespace qk::blocks
