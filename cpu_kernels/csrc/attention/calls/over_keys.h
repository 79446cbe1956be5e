#pragma once

#include <limits>
#include <numbers>

#include "attention/attention.h"

namespace qk::attention {

// Queries over the keys of a store: the common inputs of attention and of key mass. It refers to its inputs.
class OverKeys {
protected:
    OverKeys(const Store& store, const Sequences& sequences, const Heads<const float>& q, float softmax_scale,
             int64_t window, const Impl<Kernels>& impl, const Sinks& sinks, const Observed& observed)
        : store_(store),
          layout_(store.layout()),
          sequences_(sequences),
          q_(q),
          softmax_scale_(softmax_scale),
          window_(window > 0 ? window : std::numeric_limits<int64_t>::max()),
          heads_per_kv_(q.heads / store.num_heads()),
          impl_(impl),
          sinks_(sinks),
          observed_(observed) {}

    // Factor of a kv head's scores. Weights are powers of 2; softmax has powers of e.
    float score_factor(int64_t head) const {
        return softmax_scale_ * std::numbers::log2e_v<float> * store_.keys().given[head] *
               impl_.kernels.code_unit(layout_.format);
    }

    // Whether tiles multiply the new queries of a sequence: it depends on the store, and on nothing but their number.
    bool in_tiles(int64_t sequence) const {
        if (store_.is_exact() || !impl_.kernels.has_tiles || !impl_.kernels.has_tiles(layout_.format)) return false;
        const int64_t queries = sequences_.new_tokens(sequence, q_.tokens);
        return queries > 1 && queries * heads_per_kv_ >= least_tiled_rows;
    }

    const Store& store_;
    const Layout& layout_;
    const Sequences& sequences_;
    const Heads<const float>& q_;
    float softmax_scale_;
    int64_t window_, heads_per_kv_;
    const Impl<Kernels>& impl_;
    const Sinks& sinks_;
    const Observed& observed_;
};

}  // namespace qk::attention
