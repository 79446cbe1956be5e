// Stores whose recent tokens are float16 in a ring: the way of tokens from there into blocks, and back.
#pragma once

#include <cstdint>

#include "attention/attention.h"

namespace qk::attention {

// New tokens whose queries all see the same tokens encoded: all of a call, or some of one of its sequences.
struct Part {
    Sequences sequences;
    bool is_all;
    int64_t batch = 0, token = 0, count = 0;  // the rows of the call that they are

    template <class Value>
    Heads<Value> of(const Heads<Value>& heads) const {
        if (is_all) return heads;
        Heads<Value> some = heads;
        some.batch = 1;
        some.tokens = count;
        some.data = heads.heads ? heads.at(batch, 0, token) : heads.data;
        return some;
    }
    Rotation of(const Rotation& rotation, int64_t head_dim) const {
        if (is_all || !rotation.cos) return rotation;
        return {rotation.cos + token * head_dim, rotation.sin + token * head_dim};
    }
};

// The end of the longest run of new tokens from `start` on whose queries see the same tokens encoded.
inline int64_t end_of_run(const Layout& layout, int64_t start) {
    return layout.num_encoded(start + 1) + ring_tokens - 1;
}

// Calls visit(part) for each part of the call's new tokens, of each sequence in order.
template <class Visit>
void for_each_part(const Layout& layout, const Sequences& sequences, int64_t tokens, const Visit& visit) {
    bool is_one = true;
    for (int64_t b = 0; layout.has_residual() && b < sequences.count; b++) {
        const int64_t end = sequences.end(b, 0);
        is_one = is_one && end <= end_of_run(layout, end - sequences.new_tokens(b, tokens));
    }
    if (is_one) return visit(Part{sequences, true});
    for (int64_t b = 0; b < sequences.count; b++) {
        const int64_t last = sequences.end(b, 0), first = last - sequences.new_tokens(b, tokens);
        for (int64_t start = first, end; start < last; start = end) {
            end = std::min(last, end_of_run(layout, start));
            const auto [batch, token] = sequences.row(b, start - first);
            visit(Part{sequences.one(b, &end), false, batch, token, end - start});
        }
    }
}

// The same sequences as their rings hold them.
inline Sequences in_ring(Sequences sequences) {
    sequences.page_size = ring_tokens;
    sequences.in_ring = true;
    return sequences;
}

// A token in the block that a kernel gets for `token`. No query sees tokens before `begin`, and their pages may be gone,
// so the kernel gets the block of `begin` for them. Two blocks of kivi hold the scales of their keys together.
inline int64_t first_there(const Layout& layout, int64_t token, int64_t begin) {
    const int64_t size = layout.has_residual() ? group_tokens : block_tokens;
    return token / size * size + size > begin ? token : begin;
}

// Encodes the group of tokens that leaves the residual of each sequence when its `tokens` new ones come, if one does.
void encode_oldest(Store& store, const Sequences& sequences, int64_t tokens, const Kernels& kernels);

}  // namespace qk::attention
