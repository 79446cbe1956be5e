#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "attention/attention.h"
#include "attention/calls/decode_mass.h"
#include "attention/calls/over_keys.h"
#include "attention/store/residual.h"
#include "attention/calls/workspace.h"
#include "thread_pool.h"
#include "timeline.h"

namespace qk::attention {

#define QK_IMPL(isa, required, has_tiles)                                                                 \
    {                                                                                                     \
        Isa::isa, required, {                                                                             \
            isa::code_unit, isa::prepare, isa::attend, isa::attend_latents, isa::combine, isa::sum_heads, \
                isa::sum_latent_heads, isa::absmax, isa::encode, isa::rotate, has_tiles                   \
        }                                                                                                 \
    }
#if QK_X86_KERNELS
static constexpr Features needed_by_bf16 = bit(Isa::avx512) | bit(Isa::avx512_vnni) | bit(Isa::avx512_bf16);
static constexpr Impl<Kernels> exact_amx = QK_IMPL(amx, needed_by_bf16 | bit(Isa::amx), amx::has_exact_tiles);
#endif
static constexpr Impl<Kernels> impls[] = {
#if QK_X86_KERNELS
    QK_IMPL(amx, needed_by_bf16 | bit(Isa::amx), amx::has_tiles),
    QK_IMPL(avx512_bf16, needed_by_bf16, nullptr),
    QK_IMPL(avx512_vnni, bit(Isa::avx512) | bit(Isa::avx512_vnni), nullptr),
    QK_IMPL(avx512, bit(Isa::avx512), nullptr),
    QK_IMPL(avx2, bit(Isa::avx2), nullptr),
#endif
    QK_IMPL(scalar, bit(Isa::scalar), nullptr),
};
#undef QK_IMPL

std::span<const Impl<Kernels>> table() { return impls; }

const Impl<Kernels>& without_rounded_f16(const Impl<Kernels>& impl) {
#if QK_X86_KERNELS
    if (impl.isa == Isa::amx) return exact_amx;
#endif
    return impl;
}

namespace {

// Queries [first, first + count) of one sequence and kv head over tokens [begin, end), and sinks. With a residual the
// last of the tokens are in the ring, and a stretch of their own.
struct Task {
    int64_t sequence, head, first, count, begin, end;
    int64_t part, parts;  // of the tokens that these queries see
    int64_t partial;      // index of part 0 among all partial results
    int64_t counter;      // of parts yet to come
    int64_t weights;      // index of this sequence and head among those whose weights are kept
};

// A query whose sinks are a stretch of their own has more than one, which is one task.
bool is_decode(const Sequences& sequences, int64_t sequence, int64_t tokens, const Sinks& sinks) {
    return sequences.new_tokens(sequence, tokens) == 1 && sinks.count == 0;
}

// Whether a pass of its own weighs the keys: of several queries, which needs their lse, and of keys in two stores.
bool weighs_keys_apart(const Store& store, const Sequences& sequences, int64_t sequence, int64_t tokens,
                       const Sinks& sinks) {
    return store.ring() || !is_decode(sequences, sequence, tokens, sinks);
}

class Attention : OverKeys {
public:
    Attention(const Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<float>& out,
              float softmax_scale, int64_t window, const Impl<Kernels>& impl, const Sinks& sinks,
              const Observed& observed)
        : OverKeys(store, sequences, q, softmax_scale, window, impl, sinks, observed),
          out_(out),
          stretches_per_part_(store.ring() ? 2 : 1),
          keeps_weights_(observed.mass && !store.ring()),
          mass_(observed, store.num_heads(), heads_per_kv_, impl.kernels) {}

    Isa run() {
        left_ = std::vector<std::atomic<int64_t>>(static_cast<size_t>(sequences_.count * store_.num_heads()));
        add_prefill_tasks();
        add_decode_tasks();
        const auto floats = static_cast<size_t>(num_partials_ * stretches_per_part_ * heads_per_kv_);
        partial_out_.resize(floats * static_cast<size_t>(layout_.head_dim));
        partial_max_.resize(floats);
        partial_sum_.resize(floats);
        mass_.allocate();
        thread_pool()->run(static_cast<int64_t>(tasks_.size()), [&](int64_t i) { work(tasks_[i]); });
        mass_.trim();
        return ran_;
    }

private:
    int64_t num_queries(int64_t sequence) const { return sequences_.new_tokens(sequence, q_.tokens); }
    bool is_decode(int64_t sequence) const { return attention::is_decode(sequences_, sequence, q_.tokens, sinks_); }
    int64_t position(int64_t sequence, int64_t head, int64_t query) const {
        return sequences_.end(sequence, head) - num_queries(sequence) + query;
    }
    // In the window, which sinks are no part of.
    int64_t first_seen(int64_t position) const { return std::max(sinks_.count, position + 1 - window_); }

    // Tasks of sequences with one query. A query's result is that of its sequence alone, whatever others do in the
    // call.
    void add_decode_tasks() {
        for (int64_t b = 0; b < sequences_.count; b++) {
            if (!is_decode(b)) continue;
            for (int64_t g = 0; g < store_.num_heads(); g++) {
                const int64_t end = sequences_.end(b, g), begin = first_seen(end - 1);
                const int64_t first_split = begin / split_tokens, parts = ceil_div(end, split_tokens) - first_split;
                const int64_t weights = keeps_weights_ ? mass_.add_head(parts) : 0;
                for (int64_t part = 0; part < parts; part++) {
                    const int64_t start = (first_split + part) * split_tokens;
                    tasks_.push_back({b, g, 0, 1, std::max(begin, start), std::min(end, start + split_tokens), part,
                                      parts, num_partials_, b * store_.num_heads() + g, weights});
                }
                if (parts > 1) num_partials_ += parts;
                left_[b * store_.num_heads() + g].store(parts, std::memory_order_relaxed);
            }
        }
    }

    // Tiles take more rows at a time, as long as there are several tasks for each thread.
    int64_t rows_per_task() const {
        int64_t rows = 0;  // in tiles; a sequence that brings too few of them is one task anyway
        for (int64_t b = 0; b < sequences_.count; b++)
            if (!is_decode(b) && in_tiles(b)) rows += num_queries(b) * heads_per_kv_ * store_.num_heads();
        int64_t most = rows > 0 ? most_tiled_rows : prefill_rows;
        while (most > prefill_rows && rows / most < 4 * thread_pool()->num_threads()) most /= 2;
        return most;
    }

    // The longest first: a causal mask leaves the last queries twice the average to do.
    void add_prefill_tasks() {
        const int64_t queries = std::max<int64_t>(1, rows_per_task() / heads_per_kv_);
        const int64_t most = sequences_.most_new_tokens(q_.tokens);
        for (int64_t later = 0; (most > 1 || sinks_.count > 0) && later < most; later += queries)
            for (int64_t b = 0; b < sequences_.count; b++) {
                const int64_t last = num_queries(b) - later, first = std::max<int64_t>(0, last - queries);
                if (last < 1 || is_decode(b)) continue;
                for (int64_t g = 0; g < store_.num_heads(); g++)
                    tasks_.push_back({b, g, first, last - first, first_seen(position(b, g, first)),
                                      position(b, g, last - 1) + 1, 0, 1, 0, 0, 0});
            }
    }

    void work(const Task& task) {
        thread_local Workspace workspace;
        const int64_t sinks = std::min(sinks_.count, task.end), num_sinks = ceil_div(sinks, split_tokens);
        const int64_t first = task.begin / split_tokens, held = sequences_.end(task.sequence, task.head);
        const int64_t encoded = std::clamp(layout_.num_encoded(held), task.begin, std::max(task.begin, task.end));
        const int64_t num_near = task.begin < encoded ? ceil_div(encoded, split_tokens) - first : 0;
        const int64_t num_recent = encoded < task.end ? 1 : 0, num_stretches = num_sinks + num_near + num_recent;
        const bool is_tiled = !is_decode(task.sequence) && in_tiles(task.sequence);
        // Tiles go on with one chain of sums over all stretches. AVX-512 sums them apart, as decode does.
        const int64_t num_results = is_tiled ? std::min<int64_t>(1, num_stretches) : num_stretches;
        const Rows rows = workspace.rows(layout_, task.count * heads_per_kv_, num_results, is_tiled);
        const int64_t padded = workspace.padded();
        const bool keeps_weights = keeps_weights_ && is_decode(task.sequence);
        const auto visit = [&](int64_t begin, int64_t end, int64_t split, int64_t index) {
            Rows part = rows;
            if (is_tiled) index = 0;
            part.max += index * padded;
            part.sum += index * padded;
            part.out += index * padded * layout_.head_dim;
            if (keeps_weights) mass_.keep(task.weights, task.part, part);
            const int64_t start = split * split_tokens;
            attend_stretch(store_, sequences_, task, begin, start, std::min(end, start + split_tokens), part);
        };
        if (num_sinks > 0) prepare(task, sinks_.q, 0, sinks, workspace, rows);
        for (int64_t i = 0; i < num_sinks; i++) visit(0, sinks, i, i);
        if (num_near > 0) prepare(task, q_, task.begin, encoded, workspace, rows);
        for (int64_t i = 0; i < num_near; i++) visit(task.begin, encoded, first + i, num_sinks + i);
        if (num_recent > 0) attend_recent(task, encoded, num_sinks + num_near, workspace, rows);
        task.parts > 1 ? keep_part(task, rows, num_results, padded) : finish(task, rows, num_results, padded);
    }

    // The task's tokens from `begin` on, which are in the ring: stretch `index`.
    void attend_recent(const Task& task, int64_t begin, int64_t index, Workspace& workspace, Rows rows) {
        prepare(task, q_, begin, task.end, workspace, rows);
        rows.max += index * workspace.padded();
        rows.sum += index * workspace.padded();
        rows.out += index * workspace.padded() * layout_.head_dim;
        attend_stretch(*store_.ring(), in_ring(sequences_), task, begin, 0, task.end, rows);
    }

    // The task's queries, and which of the tokens [begin, end) each of them sees: all of sinks, else its window.
    void prepare(const Task& task, const Heads<const float>& q, int64_t begin, int64_t end, Workspace& workspace,
                 const Rows& rows) {
        const float factor = score_factor(task.head);
        for (int64_t i = 0; i < task.count; i++) {
            const int64_t token = position(task.sequence, task.head, task.first + i);
            for (int64_t h = 0; h < heads_per_kv_; h++) {
                const int64_t row = i * heads_per_kv_ + h;
                const float* query = q.at(sequences_, task.sequence, task.head * heads_per_kv_ + h, task.first + i);
                impl_.kernels.prepare(layout_, query, factor, rows.queries, static_cast<int>(row));
                workspace.begin()[row] = end <= sinks_.count ? begin : std::max(begin, first_seen(token));
                workspace.end()[row] = std::min(end, token + 1);
            }
        }
    }

    // begin: the first token that any of the queries sees
    void attend_stretch(const Store& store, const Sequences& sequences, const Task& task, int64_t begin, int64_t start,
                        int64_t end, const Rows& rows) {
        Block keys[split_tokens / block_tokens], values[split_tokens / block_tokens];
        start = std::max(start, begin / chunk_tokens * chunk_tokens);
        for (int64_t token = start, i = 0; token < end; token += block_tokens, i++) {
            const auto [page, block] =
                sequences.locate(task.sequence, first_there(store.layout(), token, begin), task.head);
            keys[i] = store.keys().block(page, task.head, block, store.per_tensor());
            values[i] = store.values().block(page, task.head, block, store.per_tensor());
        }
        const Stretch stretch{keys, values, start, end - start};
        ran_.store(impl_.kernels.attend(store.layout(), stretch, rows), std::memory_order_relaxed);
    }

    float out_factor(int64_t head) const {
        return store_.values().given[head] * impl_.kernels.code_unit(layout_.format);
    }

    void finish(const Task& task, const Rows& rows, int64_t stretches, int64_t padded) {
        const int64_t size = layout_.head_dim;
        std::vector<Softmax>& totals = totals_of(rows.count);
        for (int64_t row = 0; row < rows.count; row++)
            totals[row] = impl_.kernels.combine(
                rows.max + row, rows.sum + row, padded, rows.out + row * size, padded * size, stretches,
                out_factor(task.head), size,
                out_.at(sequences_, task.sequence, task.head * heads_per_kv_ + row % heads_per_kv_,
                        task.first + row / heads_per_kv_));
        report(task, totals);
    }

    // The last part to come puts all together, in their order.
    void keep_part(const Task& task, const Rows& rows, int64_t stretches, int64_t padded) {
        const int64_t size = layout_.head_dim, first = task.partial * stretches_per_part_ * heads_per_kv_;
        for (int64_t i = 0; i < stretches_per_part_; i++) {
            const int64_t row = ((task.partial + task.part) * stretches_per_part_ + i) * heads_per_kv_;
            if (i >= stretches) {  // as if no token were seen
                std::fill_n(partial_max_.data() + row, heads_per_kv_, -std::numeric_limits<float>::infinity());
                std::fill_n(partial_sum_.data() + row, heads_per_kv_, 0.0f);
                continue;
            }
            std::copy_n(rows.max + i * padded, heads_per_kv_, partial_max_.data() + row);
            std::copy_n(rows.sum + i * padded, heads_per_kv_, partial_sum_.data() + row);
            std::copy_n(rows.out + i * padded * size, heads_per_kv_ * size, partial_out_.data() + row * size);
        }
        if (left_[task.counter].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
        std::vector<Softmax>& totals = totals_of(heads_per_kv_);
        for (int64_t h = 0; h < heads_per_kv_; h++)
            totals[h] =
                impl_.kernels.combine(partial_max_.data() + first + h, partial_sum_.data() + first + h, heads_per_kv_,
                                      partial_out_.data() + (first + h) * size, heads_per_kv_ * size,
                                      task.parts * stretches_per_part_, out_factor(task.head), size,
                                      out_.at(sequences_, task.sequence, task.head * heads_per_kv_ + h, task.first));
        report(task, totals);
    }

    static std::vector<Softmax>& totals_of(int64_t rows) {
        thread_local std::vector<Softmax> totals;
        totals.resize(static_cast<size_t>(rows));
        return totals;
    }

    // Writes lse and mass, if they are asked for, from the totals of the task's rows.
    void report(const Task& task, const std::vector<Softmax>& totals) {
        for (size_t row = 0; observed_.lse && row < totals.size(); row++) {
            const auto [b, t] = sequences_.row(task.sequence, task.first + static_cast<int64_t>(row) / heads_per_kv_);
            const int64_t h = task.head * heads_per_kv_ + static_cast<int64_t>(row) % heads_per_kv_;
            observed_.lse[(b * q_.heads + h) * q_.tokens + t] = natural_lse(totals[row]);
        }
        if (!keeps_weights_ || !is_decode(task.sequence)) return;
        const int64_t end = sequences_.end(task.sequence, task.head);
        mass_.finish(task.weights, task.sequence, task.head, first_seen(end - 1), end, totals.data());
    }

    const Heads<float>& out_;
    int64_t stretches_per_part_;
    bool keeps_weights_;  // of decode steps, for their mass
    DecodeMass mass_;
    std::vector<Task> tasks_;
    int64_t num_partials_ = 0;
    std::vector<float> partial_out_, partial_max_, partial_sum_;
    std::vector<std::atomic<int64_t>> left_;
    std::atomic<Isa> ran_{};
};

}  // namespace

Isa attend(const Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<float>& out,
           float softmax_scale, int64_t window, const Impl<Kernels>& impl, const Sinks& sinks,
           const Observed& observed) {
    const timeline::Scope attention(timeline::Part::attention);
    std::vector<int64_t> others;
    std::vector<float> lse;
    Observed asked = observed;
    if (observed.mass)
        for (int64_t b = 0; b < sequences.count; b++)
            if (weighs_keys_apart(store, sequences, b, q.tokens, sinks)) others.push_back(b);
    if (!others.empty() && !observed.lse) {
        lse.resize(static_cast<size_t>(q.batch * q.heads * q.tokens));
        asked.lse = lse.data();
    }
    const Isa ran = Attention(store, sequences, q, out, softmax_scale, window, impl, sinks, asked).run();
    if (!others.empty()) key_mass(store, sequences, q, asked.lse, observed, softmax_scale, window, impl, sinks, others);
    return ran;
}

}  // namespace qk::attention
