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

// Tokens of one task: at 16 heads 256 x 1088 multiply-adds of a register, 80 us. Fixed, and counted from the first
// token, so that a result depends on the tokens that are seen alone.
constexpr int64_t latent_split = 256;
static_assert(latent_split % latent_chunk == 0);

// Rows [begin, end) for `queries` sequences from `sequence` on, each of which sees a row more than the one before.
struct Task {
    int64_t sequence, queries, begin, end;
    int64_t part;         // index among all parts
    int64_t first_part;   // of these sequences
    int64_t num_parts;
};

class LatentAttention {
public:
    LatentAttention(const Latents& latents, const Sequences& sequences, const float* q, int64_t heads, float* out,
                    float softmax_scale, int64_t window, const Impl<Kernels>& impl, const LatentObserved& observed)
        : latents_(latents),
          shape_(latents.shape),
          sequences_(sequences),
          q_(q),
          heads_(heads),
          most_queries_(std::max<int64_t>(1, latent_heads / heads)),
          padded_((most_queries_ * heads + latent_heads - 1) / latent_heads * latent_heads),
          out_(out),
          factor_(softmax_scale * std::numbers::log2e_v<float>),
          window_(window > 0 ? window : std::numeric_limits<int64_t>::max()),
          impl_(impl),
          observed_(observed),
          left_(static_cast<size_t>(sequences.count)) {}

    Isa run() {
        for (int64_t b = 0, queries; b < sequences_.count; b += queries) {
            queries = 1;
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
        }
        max_.assign(tasks_.size() * padded_, -std::numeric_limits<float>::infinity());
        sum_.assign(tasks_.size() * padded_, 0.0f);
        sums_.assign(tasks_.size() * padded_ * shape_.value_dim, 0.0f);
        thread_local Scratch weights;  // for the calling thread, whose memory the others write to
        if (observed_.mass)  // and a register, which may be read behind the last head
            weights_ = weights.floats(tasks_.size() * static_cast<size_t>(floats_per_part()) + latent_heads);
        thread_pool()->run(static_cast<int64_t>(tasks_.size()), [&](int64_t i) { work(tasks_[i]); });
        weights.trim();
        return ran_;
    }

private:
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

    void work(const Task& task) {
        thread_local std::vector<float> floats;
        const int64_t size = shape_.head_dim, heads = task.queries * heads_;
        floats.resize(static_cast<size_t>(size * padded_ + latent_chunk * (size + padded_)));
        float* queries = floats.data();
        for (int64_t h = 0; h < padded_; h++)
            for (int64_t d = 0; d < size; d++)
                queries[(h / latent_heads * size + d) * latent_heads + h % latent_heads] =
                    h < heads ? factor_ * q_[(task.sequence * heads_ + h) * size + d] : 0.0f;
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
        ran_.store(
            impl_.kernels.attend_latents({shape_, rows, task.end - task.begin, padded_, heads, seen.data(), queries,
                                          max_.data() + task.part * padded_, sum_.data() + task.part * padded_,
                                          sums_.data() + task.part * padded_ * shape_.value_dim,
                                          queries + size * padded_, weights_of(task.part), maxima_of(task.part)}),
            std::memory_order_relaxed);
        if (left_[task.sequence].fetch_sub(1, std::memory_order_acq_rel) == 1) finish(task);
    }

    // The last part to come puts all together, in their order.
    void finish(const Task& task) {
        const int64_t size = shape_.value_dim, first = task.first_part * padded_;
        thread_local std::vector<Softmax> totals;
        totals.resize(static_cast<size_t>(task.queries * heads_));
        for (int64_t h = 0; h < task.queries * heads_; h++) {
            totals[h] = impl_.kernels.combine(max_.data() + first + h, sum_.data() + first + h, padded_,
                                              sums_.data() + (first + h) * size, padded_ * size, task.num_parts, 1.0f,
                                              size, out_ + (task.sequence * heads_ + h) * size);
            if (observed_.lse) observed_.lse[task.sequence * heads_ + h] = natural_lse(totals[h]);
        }
        for (int64_t i = 0; observed_.mass && i < task.queries; i++) write_mass(task, i, totals.data());
    }

    // Writes the mass of query i of the task.
    void write_mass(const Task& task, int64_t i, const Softmax* totals) const {
        const int64_t b = task.sequence + i, begin = first_seen(b), end = sequences_.ends[b];
        float* const mass = observed_.mass + b * observed_.slots;
        std::fill(mass, mass + begin, 0.0f);
        std::fill(mass + end, mass + observed_.slots, 0.0f);
        float sums[latent_chunk];
        for (int64_t part = 0; part < task.num_parts; part++) {
            const int64_t split = (begin / latent_split + part) * latent_split,
                          last = std::min(end, split + latent_split);
            const float* weights = weights_of(task.first_part + part);
            const float* max = maxima_of(task.first_part + part);
            for (int64_t token = std::max(begin, split); token < last; token += latent_chunk, max += padded_) {
                const int64_t count = std::min(latent_chunk, last - token);
                impl_.kernels.sum_latent_heads({weights, max, count, padded_, i * heads_, (i + 1) * heads_, totals},
                                               sums);
                std::copy_n(sums, count, mass + token);
                weights += latent_chunk * padded_;
            }
        }
    }

    const Latents& latents_;
    const LatentShape& shape_;
    const Sequences& sequences_;
    const float* q_;
    int64_t heads_;
    int64_t most_queries_;  // of a task
    int64_t padded_;        // heads of as many queries
    float* out_;
    float factor_;
    int64_t window_;
    const Impl<Kernels>& impl_;
    const LatentObserved& observed_;
    std::vector<Task> tasks_;
    float* weights_ = nullptr;
    std::vector<float> max_, sum_, sums_;  // [parts, padded heads], and times value_dim
    std::vector<std::atomic<int64_t>> left_;
    std::atomic<Isa> ran_{};
};

}  // namespace

Isa attend_latents(const Latents& latents, const Sequences& sequences, const float* q, int64_t heads, float* out,
                   float softmax_scale, int64_t window, const Impl<Kernels>& impl, const LatentObserved& observed) {
    return LatentAttention(latents, sequences, q, heads, out, softmax_scale, window, impl, observed).run();
}

}  // namespace qk::attention
