#include "attention/calls/decode_mass.h"

#include <algorithm>

#include "attention/calls/workspace.h"
#include "scratch.h"

namespace qk::attention {
namespace {

// Memory of a part: weights of each chunk [heads, chunk_tokens], then the chunks' maxima [heads].
constexpr int64_t part_chunks = split_tokens / chunk_tokens;
constexpr int64_t floats_per_head = split_tokens + part_chunks;

Scratch& scratch() {
    thread_local Scratch weights;
    return weights;
}

}  // namespace

void DecodeMass::allocate() {
    if (num_added_ == 0) return;
    const int64_t floats = most_parts_ * heads_ * floats_per_head;
    memory_ = scratch().floats(static_cast<size_t>(num_added_ * floats));
    used_.assign(static_cast<size_t>(num_added_), nullptr);
    for (int64_t i = num_added_ - 1; i >= 0; i--) free_.push_back(memory_ + i * floats);
}

void DecodeMass::trim() const {
    if (memory_) scratch().trim();
}

float* DecodeMass::weights_of(int64_t index) {
    const std::lock_guard lock(mutex_);
    if (!used_[index]) {
        used_[index] = free_.back();
        free_.pop_back();
    }
    return used_[index];
}

void DecodeMass::free_weights_of(int64_t index) {
    const std::lock_guard lock(mutex_);
    free_.push_back(used_[index]);
}

void DecodeMass::keep(int64_t index, int64_t part, Rows& rows) {
    rows.weights = weights_of(index) + part * heads_ * floats_per_head;
    rows.chunk_max = rows.weights + heads_ * split_tokens;
}

void DecodeMass::finish(int64_t index, int64_t sequence, int64_t kv_head, int64_t begin, int64_t end,
                        const Softmax* totals) {
    float* const mass = observed_.mass + (sequence * num_kv_heads_ + kv_head) * observed_.slots;
    std::fill(mass, mass + begin, 0.0f);
    std::fill(mass + end, mass + observed_.slots, 0.0f);
    alignas(64) float sums[chunk_tokens];
    const float* part = weights_of(index);
    for (int64_t split = begin / split_tokens; split * split_tokens < end; split++, part += heads_ * floats_per_head) {
        const float* weights = part;
        const float* max = weights + heads_ * split_tokens;
        const int64_t last = std::min(end, (split + 1) * split_tokens);
        // The chunks of a part begin with the first one of which a token is seen.
        int64_t chunk = std::max(split * split_tokens, begin / chunk_tokens * chunk_tokens);
        for (; chunk < last; chunk += chunk_tokens, weights += heads_ * chunk_tokens, max += heads_) {
            const int64_t from = std::max(begin, chunk), to = std::min(last, chunk + chunk_tokens);
            kernels_.sum_heads(weights, max, totals, heads_, from - chunk, to - chunk, sums);
            std::copy(sums + (from - chunk), sums + (to - chunk), mass + from);
        }
    }
    free_weights_of(index);
}

}  // namespace qk::attention
