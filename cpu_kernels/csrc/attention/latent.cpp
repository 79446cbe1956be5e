#include <algorithm>
#include <atomic>
#include <limits>
#include <numbers>
#include <vector>

#include "attention/attention.h"
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
                    float softmax_scale, int64_t window, const Impl<Kernels>& impl)
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
        thread_pool()->run(static_cast<int64_t>(tasks_.size()), [&](int64_t i) { work(tasks_[i]); });
        return ran_;
    }

private:
    int64_t first_seen(int64_t b) const { return std::max<int64_t>(0, sequences_.ends[b] - window_); }

    // Whether sequence b + queries is sequence b and `queries` tokens more, of the same parts: then one register holds
    // the heads of both, and no result changes, as what a head does not see weighs nothing.
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
        ran_.store(impl_.kernels.attend_latents(
                       {shape_, rows, task.end - task.begin, padded_, heads, seen.data(), queries,
                        max_.data() + task.part * padded_, sum_.data() + task.part * padded_,
                        sums_.data() + task.part * padded_ * shape_.value_dim, queries + size * padded_}),
                   std::memory_order_relaxed);
        if (left_[task.sequence].fetch_sub(1, std::memory_order_acq_rel) == 1) finish(task);
    }

    // The last part to come puts all together, in their order.
    void finish(const Task& task) {
        const int64_t size = shape_.value_dim, first = task.first_part * padded_;
        for (int64_t h = 0; h < task.queries * heads_; h++)
            impl_.kernels.combine(max_.data() + first + h, sum_.data() + first + h, padded_,
                                  sums_.data() + (first + h) * size, padded_ * size, task.num_parts, 1.0f, size,
                                  out_ + (task.sequence * heads_ + h) * size);
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
    std::vector<Task> tasks_;
    std::vector<float> max_, sum_, sums_;  // [parts, padded heads], and times value_dim
    std::vector<std::atomic<int64_t>> left_;
    std::atomic<Isa> ran_{};
};

}  // namespace

Isa attend_latents(const Latents& latents, const Sequences& sequences, const float* q, int64_t heads, float* out,
                   float softmax_scale, int64_t window, const Impl<Kernels>& impl) {
    return LatentAttention(latents, sequences, q, heads, out, softmax_scale, window, impl).run();
}

}  // namespace qk::attention
