#include <algorithm>
#include <atomic>
#include <limits>
#include <numbers>
#include <vector>

#include "attention/attention.h"
#include "scratch.h"
#include "thread_pool.h"

namespace qk::attention {
namespace {

// Heads of a task. Tiles unpack a stretch and make pairs of its rows once for all of them: 128 queries of 16 heads over
// 4096 rows take 26 ms, and 97 ms with 16 heads per task (one core with AMX). Queries (144 KiB), scores
// (128 KiB) and sums (256 KiB) of 128 heads stay in an L2 of 2 MiB.
constexpr int64_t most_tiled_heads = 128;
// Tasks per thread whose sums are kept at once: at 128 heads of 512 channels 256 KiB each.
constexpr int64_t tasks_at_once = 16;

// Rows [begin, end) of one stretch: latent_split tokens, counted from the first one, so that a result depends only on
// the tokens that are seen; for `queries` sequences from `sequence` on, each of which sees a row more than the one before.
struct Task {
    int64_t sequence, queries, begin, end;
    int64_t part;        // index among all parts
    int64_t first_part;  // of these sequences
    int64_t num_parts;
};

// Whether tiles multiply these latents.
bool multiplies_in_tiles(const Latents& latents, const Kernels& kernels) {
    const LatentFormat format = latents.shape.format;
    if (latents.is_exact || !kernels.has_tiles || format == LatentFormat::f32) return false;
    return format != LatentFormat::f16 || kernels.has_tiles(Format::f16);
}

class LatentAttention {
public:
    LatentAttention(const Latents& latents, const Sequences& sequences, const float* q, int64_t heads, float* out,
                    float softmax_scale, int64_t window, const Impl<Kernels>& impl, const LatentObserved& observed)
        : latents_(latents),
          shape_(latents.shape),
          sequences_(sequences),
          q_(q),
          heads_(heads),
          in_tiles_(multiplies_in_tiles(latents, impl.kernels)),
          most_queries_(std::max<int64_t>(1, (in_tiles_ ? most_tiled_heads : latent_heads) / heads)),
          out_(out),
          factor_(softmax_scale * std::numbers::log2e_v<float>),
          window_(window > 0 ? window : std::numeric_limits<int64_t>::max()),
          impl_(impl),
          observed_(observed),
          left_(static_cast<size_t>(sequences.count)) {}

    Isa run() {
        const auto pool = thread_pool();
        const int64_t most_tasks = tasks_at_once * pool->num_threads();
        for (int64_t b = 0; b < sequences_.count;) {
            tasks_.clear();
            while (b < sequences_.count && static_cast<int64_t>(tasks_.size()) < most_tasks) b += add_tasks(b);
            take_memory();
            pool->run(static_cast<int64_t>(tasks_.size()), [&](int64_t i) { work(tasks_[i]); });
        }
        return ran_;
    }

private:
    // Adds the tasks of sequence b and of the ones after it. Returns the number of these sequences.
    int64_t add_tasks(int64_t b) {
        int64_t queries = 1;
        while (queries < most_queries_ && follows(b, queries)) queries++;
        const int64_t end = sequences_.ends[b + queries - 1], begin = first_seen(b);
        const int64_t split = begin / latent_split, parts = (end + latent_split - 1) / latent_split - split;
        const auto first = static_cast<int64_t>(tasks_.size());
        for (int64_t i = 0; i < parts; i++) {
            const int64_t start = (split + i) * latent_split;
            tasks_.push_back(
                {b, queries, std::max(begin, start), std::min(end, start + latent_split), first + i, first, parts});
        }
        left_[b].store(parts, std::memory_order_relaxed);
        return queries;
    }

    // Memory of the calling thread for all tasks, which the others write to.
    void take_memory() {
        thread_local Scratch memory, weights;
        padded_ = 0;
        for (const Task& task : tasks_) padded_ = std::max(padded_, padded(task));
        const auto parts = static_cast<int64_t>(tasks_.size());
        memory.trim();
        weights.trim();
        sums_ = memory.floats(static_cast<size_t>(parts * padded_ * (shape_.value_dim + 2)));
        max_ = sums_ + parts * padded_ * shape_.value_dim;
        sum_ = max_ + parts * padded_;
        if (observed_.mass)  // and a register, which may be read behind the last head
            weights_ = weights.floats(static_cast<size_t>(parts * floats_per_part() + latent_heads));
    }

    // Heads of a task, up to a multiple of latent_heads.
    int64_t padded(const Task& task) const {
        return (task.queries * heads_ + latent_heads - 1) / latent_heads * latent_heads;
    }

    // Weights [latent_split, padded heads], then the maxima of its chunks.
    int64_t floats_per_part() const { return (latent_split + latent_split / latent_chunk) * padded_; }
    float* weights_of(int64_t part) const { return weights_ ? weights_ + part * floats_per_part() : nullptr; }
    float* maxima_of(int64_t part) const { return weights_ ? weights_of(part) + latent_split * padded_ : nullptr; }

    int64_t first_seen(int64_t b) const { return std::max<int64_t>(0, sequences_.ends[b] - window_); }

    // Whether sequence b + queries is sequence b and `queries` tokens more, of the same parts: then one register holds
    // the heads of both, and no result changes, as tokens that a head does not see weigh nothing.
    bool follows(int64_t b, int64_t queries) const {
        const int64_t next = b + queries;
        if (next >= sequences_.count || sequences_.ends[next] != sequences_.ends[b] + queries) return false;
        const int64_t last = sequences_.ends[b] - 1;
        const int32_t* const pages = sequences_.table + b * sequences_.pages;
        return (last + queries) / latent_split == last / latent_split && first_seen(next) == first_seen(b) &&
               std::equal(pages, pages + (last + queries) / sequences_.page_size + 1,
                          sequences_.table + next * sequences_.pages);
    }

    // Queries [heads] times the factor, 16 heads side by side, and scratch memory after them.
    float* side_by_side(const float* q, int64_t heads, int64_t padded) const {
        thread_local std::vector<float> floats;
        const int64_t size = shape_.head_dim;
        floats.resize(static_cast<size_t>(size * padded + latent_chunk * (size + padded)));
        for (int64_t h = 0; h < padded; h++)
            for (int64_t d = 0; d < size; d++)
                floats[(h / latent_heads * size + d) * latent_heads + h % latent_heads] =
                    h < heads ? factor_ * q[h * size + d] : 0.0f;
        return floats.data();
    }

    void work(const Task& task) {
        const std::byte* rows[latent_split];
        for (int64_t token = task.begin; token < task.end; token++) {
            const int64_t page = sequences_.table[task.sequence * sequences_.pages + token / sequences_.page_size];
            rows[token - task.begin] =
                latents_.data + (page * sequences_.page_size + token % sequences_.page_size) * latents_.row_bytes;
        }
        thread_local std::vector<int64_t> seen;
        seen.clear();
        for (int64_t i = 0; i < task.queries; i++)
            seen.insert(seen.end(), static_cast<size_t>(heads_),
                        std::min(task.end, sequences_.ends[task.sequence + i]) - task.begin);
        LatentRows rows_of{};
        rows_of.shape = shape_;
        rows_of.rows = rows;
        rows_of.count = task.end - task.begin;
        rows_of.heads = padded(task);
        rows_of.num_heads = task.queries * heads_;
        rows_of.seen = seen.data();
        rows_of.q = q_ + task.sequence * heads_ * shape_.head_dim;
        rows_of.factor = factor_;
        rows_of.max = max_ + task.part * padded_;
        rows_of.sum = sum_ + task.part * padded_;
        rows_of.out = sums_ + task.part * padded_ * shape_.value_dim;
        rows_of.in_tiles = in_tiles_;
        rows_of.weights = weights_of(task.part);
        rows_of.chunk_max = maxima_of(task.part);
        if (!in_tiles_) {
            float* const queries = side_by_side(rows_of.q, rows_of.num_heads, rows_of.heads);
            rows_of.queries = queries;
            rows_of.scratch = queries + shape_.head_dim * rows_of.heads;
            std::fill_n(rows_of.max, rows_of.heads, -std::numeric_limits<float>::infinity());
            std::fill_n(rows_of.sum, rows_of.heads, 0.0f);
            std::fill_n(rows_of.out, rows_of.heads * shape_.value_dim, 0.0f);
        }
        ran_.store(impl_.kernels.attend_latents(rows_of), std::memory_order_relaxed);
        if (left_[task.sequence].fetch_sub(1, std::memory_order_acq_rel) == 1) finish(task);
    }

    // The last part to come puts all together, in their order.
    void finish(const Task& task) {
        const int64_t size = shape_.value_dim, first = task.first_part * padded_;
        thread_local std::vector<Softmax> totals;
        totals.resize(static_cast<size_t>(task.queries * heads_));
        for (int64_t h = 0; h < task.queries * heads_; h++) {
            totals[h] = impl_.kernels.combine(max_ + first + h, sum_ + first + h, padded_, sums_ + (first + h) * size,
                                              padded_ * size, task.num_parts, 1.0f, size,
                                              out_ + (task.sequence * heads_ + h) * size);
            if (observed_.lse) observed_.lse[task.sequence * heads_ + h] = natural_lse(totals[h]);
        }
        for (int64_t i = 0; observed_.mass && i < task.queries; i++) write_mass(task, i, totals.data());
    }

    // Writes the mass of query i of the task.
    void write_mass(const Task& task, int64_t i, const Softmax* totals) const {
        const int64_t b = task.sequence + i, begin = first_seen(b), end = sequences_.ends[b], heads = padded(task);
        float* const mass = observed_.mass + b * observed_.slots;
        std::fill(mass, mass + begin, 0.0f);
        std::fill(mass + end, mass + observed_.slots, 0.0f);
        float sums[latent_chunk];
        for (int64_t part = 0; part < task.num_parts; part++) {
            const int64_t split = (begin / latent_split + part) * latent_split,
                          last = std::min(end, split + latent_split);
            const float* weights = weights_of(task.first_part + part);
            const float* max = maxima_of(task.first_part + part);
            for (int64_t token = std::max(begin, split); token < last; token += latent_chunk, max += heads) {
                const int64_t count = std::min(latent_chunk, last - token);
                impl_.kernels.sum_latent_heads({weights, max, count, heads, i * heads_, (i + 1) * heads_, totals},
                                               sums);
                std::copy_n(sums, count, mass + token);
                weights += latent_chunk * heads;
            }
        }
    }

    const Latents& latents_;
    const LatentShape& shape_;
    const Sequences& sequences_;
    const float* q_;
    int64_t heads_;
    bool in_tiles_;
    int64_t most_queries_;  // of a task
    int64_t padded_ = 0;    // the most heads of a task that memory is for
    float* out_;
    float factor_;
    int64_t window_;
    const Impl<Kernels>& impl_;
    const LatentObserved& observed_;
    std::vector<Task> tasks_;
    float* weights_ = nullptr;
    float *max_ = nullptr, *sum_ = nullptr, *sums_ = nullptr;  // [parts, padded heads], and times value_dim
    std::vector<std::atomic<int64_t>> left_;
    std::atomic<Isa> ran_{};
};

}  // namespace

Isa attend_latents(const Latents& latents, const Sequences& sequences, const float* q, int64_t heads, float* out,
                   float softmax_scale, int64_t window, const Impl<Kernels>& impl, const LatentObserved& observed) {
    return LatentAttention(latents, sequences, q, heads, out, softmax_scale, window, impl, observed).run();
}

}  // namespace qk::attention
