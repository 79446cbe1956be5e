// Attention mass of one query per sequence, collected in the pass over keys and values that attends.
//
// A part's weights are relative to the maximum that their chunk had, and the softmax's sum is known after the last part
// alone. So each part keeps its weights, and the last one scales and sums them over the heads of the group.
#pragma once

#include <cstdint>
#include <utility>

#include "attention/attention.h"
#include "attention/kernels.h"

namespace qk::attention {

class DecodeMass {
public:
    // `heads`: query heads per kv head
    DecodeMass(const Observed& observed, int64_t num_kv_heads, int64_t heads, const Kernels& kernels)
        : observed_(observed), num_kv_heads_(num_kv_heads), heads_(heads), kernels_(kernels) {}

    bool is_wanted() const { return observed_.mass != nullptr; }

    // The index of the first of `parts` more.
    int64_t add_parts(int64_t parts) { return is_wanted() ? std::exchange(num_parts_, num_parts_ + parts) : 0; }

    // After the last add_parts: memory of all of them, which the calling thread keeps.
    void allocate();
    // Gives back memory that only a large batch of long sequences needs.
    void trim() const;

    // Has the kernel keep the weights of a part.
    void keep(int64_t part, Rows& rows) const;

    // Writes the mass of one kv head: `first` is the part with token `begin`, the first of those that the query sees.
    void finish(int64_t sequence, int64_t kv_head, int64_t first, int64_t begin, int64_t end,
                const Softmax* totals) const;

private:
    float* part_at(int64_t part) const;

    const Observed& observed_;
    int64_t num_kv_heads_, heads_;
    const Kernels& kernels_;
    int64_t num_parts_ = 0;
    float* weights_ = nullptr;
};

}  // namespace qk::attention
