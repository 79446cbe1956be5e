#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numbers>
#include <vector>

#include "attention/attention.h"
#include "buffer.h"
#include "thread_pool.h"

namespace qk::attention {

#define QK_IMPL(isa, required)                                                                                      \
    {                                                                                                               \
        Isa::isa, required, {                                                                                       \
            isa::code_unit, isa::prepare, isa::attend, isa::attend_latents, isa::combine, isa::absmax, isa::encode, \
                isa::rotate                                                                                         \
        }                                                                                                           \
    }
static constexpr Impl<Kernels> impls[] = {
#if QK_X86_KERNELS
    QK_IMPL(avx512_bf16, bit(Isa::avx512) | bit(Isa::avx512_vnni) | bit(Isa::avx512_bf16)),
    QK_IMPL(avx512_vnni, bit(Isa::avx512) | bit(Isa::avx512_vnni)),
    QK_IMPL(avx512, bit(Isa::avx512)),
    QK_IMPL(avx2, bit(Isa::avx2)),
#endif
    QK_IMPL(scalar, bit(Isa::scalar)),
};
#undef QK_IMPL

std::span<const Impl<Kernels>> table() { return impls; }

namespace {

// Tokens that are summed by themselves, and in decoding a task: 1024 x 2 x 128 bytes (float16, D = 64) take 15 us at
// 18 GB/s a core. Half as many would cost a tenth more, as a task's first keys are waited for; twice as many would
// leave the threads too few: 4096 tokens of 8 kv heads are 32 tasks. Fixed, counted from the first token, and the same
// for many queries as for one, so that a query's result depends on the tokens that it sees alone.
constexpr int64_t split_tokens = 1024;
static_assert(split_tokens % chunk_tokens == 0);

// Rows of a task in prefill: their queries and sums (D = 64: 32 KiB) and a chunk of float32 (64 KiB) stay in the L2.
constexpr int64_t prefill_rows = 64;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Queries [first, first + count) of one sequence and kv head over tokens [begin, end), and sinks.
struct Task {
    int64_t sequence, head, first, count, begin, end;
    int64_t part, parts;  // of the tokens that these queries see
    int64_t partial;      // index of part 0 among all partial results
    int64_t counter;      // of parts yet to come
};

// What is per row, with room for a whole number of tiles; zeros in rows that are not there. Maxima, sums and outputs
// of `stretches` of tokens lie one stretch after the other.
class Workspace {
public:
    Rows rows(const Layout& layout, int64_t count, int64_t stretches) {
        const int64_t padded = ceil_div(count, max_tile) * max_tile, size = padded * layout.head_dim;
        const int64_t groups = layout.groups();
        floats_.assign(static_cast<size_t>(size + padded * (1 + groups) + stretches * (2 * padded + size)), 0.0f);
        codes_.assign(static_cast<size_t>(size), 0);
        bounds_.assign(static_cast<size_t>(2 * padded), 0);
        float* next = floats_.data();
        const auto take = [&next](int64_t floats) { return std::exchange(next, next + floats); };
        Rows rows{};
        rows.count = static_cast<int>(count);
        rows.queries = {take(size), codes_.data(), take(padded), take(padded * groups)};
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

class Attention {
public:
    Attention(const Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<float>& out,
              float softmax_scale, int64_t window, const Impl<Kernels>& impl, const Sinks& sinks)
        : store_(store),
          layout_(store.layout()),
          sequences_(sequences),
          q_(q),
          out_(out),
          softmax_scale_(softmax_scale),
          window_(window > 0 ? window : std::numeric_limits<int64_t>::max()),
          heads_per_kv_(q.heads / store.num_heads()),
          impl_(impl),
          sinks_(sinks) {}

    Isa run() {
        left_ = std::vector<std::atomic<int64_t>>(static_cast<size_t>(sequences_.count * store_.num_heads()));
        add_prefill_tasks();
        add_decode_tasks();
        const auto floats = static_cast<size_t>(num_partials_ * heads_per_kv_);
        partial_out_.resize(floats * static_cast<size_t>(layout_.head_dim));
        partial_max_.resize(floats);
        partial_sum_.resize(floats);
        thread_pool()->run(static_cast<int64_t>(tasks_.size()), [&](int64_t i) { work(tasks_[i]); });
        return ran_;
    }

private:
    int64_t num_queries(int64_t sequence) const { return sequences_.new_tokens(sequence, q_.tokens); }
    int64_t position(int64_t sequence, int64_t query) const {
        return sequences_.ends[sequence] - num_queries(sequence) + query;
    }
    // In the window, which sinks are no part of.
    int64_t first_seen(int64_t position) const { return std::max(sinks_.count, position + 1 - window_); }
    // A query whose sinks are a stretch of their own has more than one, which is one task.
    bool is_decode(int64_t sequence) const { return num_queries(sequence) == 1 && sinks_.count == 0; }

    // Of sequences with one query. A query's result is that of its sequence alone, whatever others do in the call.
    void add_decode_tasks() {
        for (int64_t b = 0; b < sequences_.count; b++) {
            if (!is_decode(b)) continue;
            const int64_t end = sequences_.ends[b], begin = first_seen(end - 1);
            const int64_t first_split = begin / split_tokens, parts = ceil_div(end, split_tokens) - first_split;
            for (int64_t g = 0; g < store_.num_heads(); g++) {
                for (int64_t part = 0; part < parts; part++) {
                    const int64_t start = (first_split + part) * split_tokens;
                    tasks_.push_back({b, g, 0, 1, std::max(begin, start), std::min(end, start + split_tokens), part,
                                      parts, num_partials_, b * store_.num_heads() + g});
                }
                if (parts > 1) num_partials_ += parts;
                left_[b * store_.num_heads() + g].store(parts, std::memory_order_relaxed);
            }
        }
    }

    // The longest first: a causal mask leaves the last queries twice the average to do.
    void add_prefill_tasks() {
        const int64_t queries = std::max<int64_t>(1, prefill_rows / heads_per_kv_);
        const int64_t most = sequences_.most_new_tokens(q_.tokens);
        for (int64_t later = 0; (most > 1 || sinks_.count > 0) && later < most; later += queries)
            for (int64_t b = 0; b < sequences_.count; b++) {
                const int64_t last = num_queries(b) - later, first = std::max<int64_t>(0, last - queries);
                if (last < 1 || is_decode(b)) continue;
                for (int64_t g = 0; g < store_.num_heads(); g++)
                    tasks_.push_back({b, g, first, last - first, first_seen(position(b, first)),
                                      position(b, last - 1) + 1, 0, 1, 0, 0});
            }
    }

    void work(const Task& task) {
        thread_local Workspace workspace;
        const int64_t sinks = std::min(sinks_.count, task.end), num_sinks = ceil_div(sinks, split_tokens);
        const int64_t first = task.begin / split_tokens;
        const int64_t num_near = task.begin < task.end ? ceil_div(task.end, split_tokens) - first : 0;
        const Rows rows = workspace.rows(layout_, task.count * heads_per_kv_, num_sinks + num_near);
        const int64_t padded = workspace.padded();
        const auto visit = [&](int64_t begin, int64_t end, int64_t split, int64_t index) {
            Rows part = rows;
            part.max += index * padded;
            part.sum += index * padded;
            part.out += index * padded * layout_.head_dim;
            const int64_t start = split * split_tokens;
            attend_stretch(task, begin, start, std::min(end, start + split_tokens), part);
        };
        if (num_sinks > 0) prepare(task, sinks_.q, 0, sinks, workspace, rows);
        for (int64_t i = 0; i < num_sinks; i++) visit(0, sinks, i, i);
        if (num_near > 0) prepare(task, q_, task.begin, task.end, workspace, rows);
        for (int64_t i = 0; i < num_near; i++) visit(task.begin, task.end, first + i, num_sinks + i);
        task.parts > 1 ? keep_part(task, rows) : finish(task, rows, num_sinks + num_near, padded);
    }

    // The task's queries, and which of the tokens [begin, end) each of them sees: all of sinks, else its window.
    void prepare(const Task& task, const Heads<const float>& q, int64_t begin, int64_t end, Workspace& workspace,
                 const Rows& rows) {
        // Weights are powers of 2 where softmax has powers of e.
        const float factor = softmax_scale_ * std::numbers::log2e_v<float> * store_.keys().given[task.head] *
                             impl_.kernels.code_unit(layout_.format);
        for (int64_t i = 0; i < task.count; i++) {
            const int64_t token = position(task.sequence, task.first + i);
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
    void attend_stretch(const Task& task, int64_t begin, int64_t start, int64_t end, const Rows& rows) {
        Block keys[split_tokens / block_tokens], values[split_tokens / block_tokens];
        start = std::max(start, begin / chunk_tokens * chunk_tokens);
        for (int64_t token = start, i = 0; token < end; token += block_tokens, i++) {
            const bool seen = token + block_tokens > begin;  // pages before the window may be gone
            const auto [page, block] = sequences_.locate(task.sequence, seen ? token : begin);
            keys[i] = store_.keys().block(page, task.head, block, store_.per_tensor());
            values[i] = store_.values().block(page, task.head, block, store_.per_tensor());
        }
        ran_.store(impl_.kernels.attend(layout_, {keys, values, start, end - start}, rows), std::memory_order_relaxed);
    }

    float out_factor(int64_t head) const {
        return store_.values().given[head] * impl_.kernels.code_unit(layout_.format);
    }

    void finish(const Task& task, const Rows& rows, int64_t stretches, int64_t padded) {
        const int64_t size = layout_.head_dim;
        for (int64_t row = 0; row < rows.count; row++)
            impl_.kernels.combine(rows.max + row, rows.sum + row, padded, rows.out + row * size, padded * size,
                                  stretches, out_factor(task.head), size,
                                  out_.at(sequences_, task.sequence, task.head * heads_per_kv_ + row % heads_per_kv_,
                                          task.first + row / heads_per_kv_));
    }

    // The last part to come puts all together, in their order.
    void keep_part(const Task& task, const Rows& rows) {
        const int64_t size = layout_.head_dim, first = task.partial * heads_per_kv_;
        const int64_t row = (task.partial + task.part) * heads_per_kv_;
        std::copy_n(rows.max, heads_per_kv_, partial_max_.data() + row);
        std::copy_n(rows.sum, heads_per_kv_, partial_sum_.data() + row);
        std::copy_n(rows.out, heads_per_kv_ * size, partial_out_.data() + row * size);
        if (left_[task.counter].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
        for (int64_t h = 0; h < heads_per_kv_; h++)
            impl_.kernels.combine(partial_max_.data() + first + h, partial_sum_.data() + first + h, heads_per_kv_,
                                  partial_out_.data() + (first + h) * size, heads_per_kv_ * size, task.parts,
                                  out_factor(task.head), size,
                                  out_.at(sequences_, task.sequence, task.head * heads_per_kv_ + h, task.first));
    }

    const Store& store_;
    const Layout& layout_;
    const Sequences& sequences_;
    const Heads<const float>& q_;
    const Heads<float>& out_;
    float softmax_scale_;
    int64_t window_, heads_per_kv_;
    const Impl<Kernels>& impl_;
    const Sinks& sinks_;
    std::vector<Task> tasks_;
    int64_t num_partials_ = 0;
    std::vector<float> partial_out_, partial_max_, partial_sum_;
    std::vector<std::atomic<int64_t>> left_;
    std::atomic<Isa> ran_{};
};

}  // namespace

Isa attend(const Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<float>& out,
           float softmax_scale, int64_t window, const Impl<Kernels>& impl, const Sinks& sinks) {
    return Attention(store, sequences, q, out, softmax_scale, window, impl, sinks).run();
}

}  // namespace qk::attention
