#include <algorithm>
#include <atomic>
#include <vector>

#include "attention/calls/over_keys.h"
#include "attention/calls/workspace.h"
#include "thread_pool.h"

namespace qk::attention {
namespace {

// Queries [first, first + count) of one head, and their list of key blocks. The listed blocks are taken as if they
// followed each other: token i of that sequence is token i % key_block of the list's block i / key_block.
struct ListTask {
    int64_t head, first, count;
    std::span<const int32_t> list;
    int64_t seen;  // tokens of the list that the last query sees
};

class BlockAttention : OverKeys {
public:
    BlockAttention(const Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<float>& out,
                   float softmax_scale, const BlockLists& lists, const Impl<Kernels>& impl, const Observed& observed)
        : OverKeys(store, sequences, q, softmax_scale, 0, impl, no_sinks_, observed), out_(out), lists_(lists) {}

    Isa run() {
        std::vector<ListTask> tasks = make_tasks();
        // The longest first, so that no thread begins a long one when the others end.
        std::stable_sort(tasks.begin(), tasks.end(), [](const auto& a, const auto& b) { return a.seen > b.seen; });
        thread_pool()->run(static_cast<int64_t>(tasks.size()), [&](int64_t i) { work(tasks[i]); });
        return ran_;
    }

private:
    std::vector<ListTask> make_tasks() const {
        std::vector<ListTask> tasks;
        const int64_t most = in_tiles(0) ? most_tiled_rows : prefill_rows;
        for (int64_t block = 0; block < lists_.query_blocks; block++) {
            const int64_t begin = block * lists_.query_block, end = std::min(begin + lists_.query_block, q_.tokens);
            for (int64_t h = 0; h < q_.heads; h++) {
                const auto list = lists_.of(h, block);
                for (int64_t first = begin; first < end; first += most) {
                    const int64_t count = std::min(most, end - first);
                    tasks.push_back({h, first, count, list, seen_tokens(h, list, first + count - 1)});
                }
            }
        }
        return tasks;
    }

    // Tokens of the list that are not after the query. The list rises, so they are its first ones.
    int64_t seen_tokens(int64_t head, std::span<const int32_t> list, int64_t query) const {
        const int64_t position = sequences_.end(0, head / heads_per_kv_) - q_.tokens + query;
        const auto own = position / lists_.key_block;
        const auto later = std::upper_bound(list.begin(), list.end(), own);
        const int64_t blocks = later - list.begin();
        if (blocks == 0 || list[blocks - 1] != own) return blocks * lists_.key_block;
        return (blocks - 1) * lists_.key_block + position % lists_.key_block + 1;
    }

    void work(const ListTask& task) {
        thread_local Workspace workspace;
        const int64_t num_stretches = ceil_div(task.seen, split_tokens);
        const int64_t num_results = in_tiles(0) ? std::min<int64_t>(1, num_stretches) : num_stretches;
        const Rows rows = workspace.rows(layout_, task.count, num_results, in_tiles(0));
        const int64_t padded = workspace.padded();
        const float factor = score_factor(task.head / heads_per_kv_);
        for (int64_t i = 0; i < task.count; i++) {
            impl_.kernels.prepare(layout_, q_.at(0, task.head, task.first + i), factor, rows.queries,
                                  static_cast<int>(i));
            workspace.end()[i] = seen_tokens(task.head, task.list, task.first + i);
        }
        for (int64_t i = 0; i < num_stretches; i++) {
            Rows part = rows;
            const int64_t index = std::min(i, num_results - 1);
            part.max += index * padded;
            part.sum += index * padded;
            part.out += index * padded * layout_.head_dim;
            attend_stretch(task, i * split_tokens, std::min(task.seen, (i + 1) * split_tokens), part);
        }
        finish(task, rows, num_results, padded);
    }

    // Tokens [begin, end) of the list.
    void attend_stretch(const ListTask& task, int64_t begin, int64_t end, const Rows& rows) {
        Block keys[split_tokens / block_tokens], values[split_tokens / block_tokens];
        const int64_t kv_head = task.head / heads_per_kv_;
        for (int64_t token = begin, i = 0; token < end; token += block_tokens, i++) {
            const int64_t there = task.list[token / lists_.key_block] * lists_.key_block + token % lists_.key_block;
            const auto [page, block] = sequences_.locate(0, there);
            keys[i] = store_.keys().block(page, kv_head, block, store_.per_tensor());
            values[i] = store_.values().block(page, kv_head, block, store_.per_tensor());
        }
        const Stretch stretch{keys, values, begin, end - begin};
        ran_.store(impl_.kernels.attend(layout_, stretch, rows), std::memory_order_relaxed);
    }

    void finish(const ListTask& task, const Rows& rows, int64_t stretches, int64_t padded) {
        const int64_t size = layout_.head_dim;
        const float factor = store_.values().given[task.head / heads_per_kv_] * impl_.kernels.code_unit(layout_.format);
        for (int64_t row = 0; row < task.count; row++) {
            const int64_t query = task.first + row;
            const Softmax total =
                impl_.kernels.combine(rows.max + row, rows.sum + row, padded, rows.out + row * size, padded * size,
                                      stretches, factor, size, out_.at(0, task.head, query));
            if (observed_.lse) observed_.lse[task.head * q_.tokens + query] = natural_lse(total);
        }
    }

    inline static const Sinks no_sinks_{};
    const Heads<float>& out_;
    const BlockLists& lists_;
    std::atomic<Isa> ran_{};
};

}  // namespace

Isa attend_blocks(const Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<float>& out,
                  float softmax_scale, const BlockLists& lists, const Impl<Kernels>& impl, const Observed& observed) {
    return BlockAttention(store, sequences, q, out, softmax_scale, lists, impl, observed).run();
}

}  // namespace qk::attention
