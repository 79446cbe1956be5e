#include <algorithm>
#include <atomic>
#include <numbers>
#include <span>
#include <vector>

#include "attention/calls/over_keys.h"
#include "attention/store/residual.h"
#include "attention/calls/workspace.h"
#include "thread_pool.h"

namespace qk::attention {
namespace {

// Keys of a task: 512 x 128 bytes (float16, D = 64) stay in the L2 while all queries pass, and each query is prepared
// once per task. Counted from the first slot, so that a key's mass is the same sum for any number of threads.
constexpr int64_t mass_keys = 512;
static_assert(mass_keys % chunk_tokens == 0);

// Slots [begin, end) of one sequence and kv head.
struct KeyRange { int64_t sequence, head, begin, end; };

class KeyMass : OverKeys {
public:
    KeyMass(const Store& store, const Sequences& sequences, const Heads<const float>& q, const float* lse,
            const Observed& observed, float softmax_scale, int64_t window, const Impl<Kernels>& impl,
            const Sinks& sinks)
        : OverKeys(store, sequences, q, softmax_scale, window, impl, sinks, observed), lse_(lse) {}

    Isa run(std::span<const int64_t> which) {
        std::vector<KeyRange> tasks;
        for (const int64_t b : which)
            for (int64_t g = 0; g < store_.num_heads(); g++)
                for (int64_t begin = 0; begin < observed_.slots; begin += mass_keys)
                    tasks.push_back({b, g, begin, std::min(begin + mass_keys, observed_.slots)});
        thread_pool()->run(static_cast<int64_t>(tasks.size()), [&](int64_t i) { work(tasks[i]); });
        return ran_;
    }

private:
    int64_t num_queries(int64_t sequence) const { return sequences_.new_tokens(sequence, q_.tokens); }
    int64_t position(const KeyRange& task, int64_t query) const {
        return sequences_.end(task.sequence, task.head) - num_queries(task.sequence) + query;
    }
    // The first query that counts.
    int64_t first_query(int64_t sequence) const {
        const int64_t all = num_queries(sequence);
        return observed_.mass_queries > 0 ? std::max<int64_t>(0, all - observed_.mass_queries) : 0;
    }

    int64_t rows_at_a_time(int64_t sequence) const { return in_tiles(sequence) ? most_tiled_rows : prefill_rows; }

    void work(const KeyRange& task) {
        alignas(64) float mass[mass_keys] = {};
        if (num_queries(task.sequence) > 0) {
            const int64_t end = std::min(task.end, sequences_.end(task.sequence, task.head));
            const int64_t first = position(task, first_query(task.sequence));
            add(store_, sequences_, task, sinks_.q, task.begin, std::min(end, sinks_.count), true, mass);
            const int64_t seen = std::max({task.begin, sinks_.count, first + 1 - window_});
            const int64_t encoded = store_.layout().num_encoded(sequences_.end(task.sequence, task.head));
            add(store_, sequences_, task, q_, seen, std::min(end, encoded), false, mass);
            if (store_.ring())
                add(*store_.ring(), in_ring(sequences_), task, q_, std::max(seen, encoded), end, false, mass);
        }
        float* const out = observed_.mass + (task.sequence * store_.num_heads() + task.head) * observed_.slots;
        std::copy_n(mass, task.end - task.begin, out + task.begin);
    }

    // The weights that queries give to the keys of slots [begin, end), which the task's slots contain.
    void add(const Store& store, const Sequences& sequences, const KeyRange& task, const Heads<const float>& q,
             int64_t begin, int64_t end, bool is_sinks, float* mass) {
        if (begin >= end) return;
        Block keys[mass_keys / block_tokens];
        const int64_t start = begin / chunk_tokens * chunk_tokens;
        for (int64_t token = start, i = 0; token < end; token += block_tokens, i++) {
            const auto [page, block] =
                sequences.locate(task.sequence, first_there(store.layout(), token, begin), task.head);
            keys[i] = store.keys().block(page, task.head, block, store.per_tensor());
        }
        const Stretch stretch{keys, nullptr, start, end - start};
        const int64_t last = num_queries(task.sequence),
                      count = std::max<int64_t>(1, rows_at_a_time(task.sequence) / heads_per_kv_);
        const int64_t earlier = begin - position(task, 0);  // queries before the first key do not see it
        thread_local Workspace workspace;
        for (int64_t t = std::max(first_query(task.sequence), earlier); t < last; t += count) {
            // Nor do those whose window begins after the last key.
            if (!is_sinks && position(task, t) - (end - 1) >= window_) break;
            Rows rows = prepare(task, q, begin, end, is_sinks, t, std::min(count, last - t), workspace);
            rows.mass = mass + (start - task.begin);
            ran_.store(impl_.kernels.attend(store.layout(), stretch, rows), std::memory_order_relaxed);
        }
    }

    // Queries [first, first + count), their lse to the base 2, and the tokens of [begin, end) that each of them sees.
    Rows prepare(const KeyRange& task, const Heads<const float>& q, int64_t begin, int64_t end, bool is_sinks,
                 int64_t first, int64_t count, Workspace& workspace) const {
        const Rows rows = workspace.rows(layout_, count * heads_per_kv_, 1, in_tiles(task.sequence));
        const float factor = score_factor(task.head);
        for (int64_t i = 0; i < count; i++) {
            const int64_t token = position(task, first + i);
            const auto [b, t] = sequences_.row(task.sequence, first + i);
            for (int64_t h = 0; h < heads_per_kv_; h++) {
                const int64_t row = i * heads_per_kv_ + h, head = task.head * heads_per_kv_ + h;
                impl_.kernels.prepare(layout_, q.at(b, head, t), factor, rows.queries, static_cast<int>(row));
                rows.max[row] = lse_[(b * q.heads + head) * q.tokens + t] * std::numbers::log2e_v<float>;
                workspace.begin()[row] = is_sinks ? begin : std::max(begin, token + 1 - window_);
                workspace.end()[row] = std::min(end, token + 1);
            }
        }
        return rows;
    }

    const float* lse_;  // [B, heads, T]
    std::atomic<Isa> ran_{};
};

}  // namespace

Isa key_mass(const Store& store, const Sequences& sequences, const Heads<const float>& q, const float* lse,
             const Observed& observed, float softmax_scale, int64_t window, const Impl<Kernels>& impl,
             const Sinks& sinks, std::span<const int64_t> which) {
    return KeyMass(store, sequences, q, lse, observed, softmax_scale, window, impl, sinks).run(which);
}

}  // namespace qk::attention
