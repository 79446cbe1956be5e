// Attention mass of one query per sequence, collected in the pass over keys and values that attends.
//
// A part's weights are relative to the maximum that their chunk had, and the softmax's sum is known after the last part
// alone. So each part keeps its weights, and the last one scales and sums them over the heads of the group. Memory for
// them goes from one kv head that is done to the next one: so it stays in the L2, which saves half of the cost.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

#include "attention/attention.h"
#include "attention/kernels.h"

namespace qk::attention {

class DecodeMass {
public:
    // `heads`: query heads per kv head
    DecodeMass(const Observed& observed, int64_t num_kv_heads, int64_t heads, const Kernels& kernels)
        : observed_(observed), num_kv_heads_(num_kv_heads), heads_(heads), kernels_(kernels) {}

    // The index of one more kv head of a sequence, whose tokens are divided into this number of parts.
    int64_t add_head(int64_t parts) {
        most_parts_ = std::max(most_parts_, parts);
        return num_added_++;
    }

    // After the last add_head: room for the weights of all, of memory that the calling thread keeps. Only as much of it
    // is touched as is in use at a time.
    void allocate();
    // Gives back memory that only a large batch of long sequences needs.
    void trim() const;

    // Has the kernel keep the weights of a part of the head that add_head called `index`.
    void keep(int64_t index, int64_t part, Rows& rows);

    // Writes the mass of that head, of whose tokens the query sees [begin, end), and frees its memory.
    void finish(int64_t index, int64_t sequence, int64_t kv_head, int64_t begin, int64_t end, const Softmax* totals);

private:
    float* weights_of(int64_t index);
    void free_weights_of(int64_t index);

    const Observed& observed_;
    int64_t num_kv_heads_, heads_;
    const Kernels& kernels_;
    int64_t num_added_ = 0, most_parts_ = 0;
    float* memory_ = nullptr;
    std::mutex mutex_;
    std::vector<float*> used_;  // [heads added]: null before the first part
    std::vector<float*> free_;  // the last one is taken first
};

}  // namespace qk::attention
