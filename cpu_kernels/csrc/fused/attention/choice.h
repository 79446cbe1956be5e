// Which pages the query of a decode step reads, chosen between the store of its key and its attention.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "attention/attention.h"
#include "blocks/blocks.h"

namespace qk::fused {

// Mixes scores of blocks with those of the step before: rest * score + share * before, of the first `num_before` blocks.
struct Smoothing {
    float share = 0, rest = 1;
    const float* before = nullptr;  // [heads of rows, num_before]
    int64_t num_before = 0;
    float* after = nullptr;  // [heads of rows, num_rows], which gets the result; null: scores stay as they are
};

// The first pages of a sequence, those of the `count` best blocks, and those from `first_page` on.
struct BlockChoice {
    blocks::Rows rows;  // heads: one, or as many as the store has
    bool has_bounds;    // a row is the minimum and the maximum of each channel; false: a key of every kv head
    int64_t count;
    int64_t init_pages, block_pages, first_page;
    const Impl<blocks::Kernels>* impl;
    // Called with the best blocks [heads of rows, count] if pages of them are not in the table, to bring them; may be
    // empty.
    std::function<void(const int64_t*)> on_choice;
    int64_t* chosen = nullptr;  // [heads of rows, count], which gets the best blocks, or null
    Smoothing smoothing;

    // Tokens that are read, of `end` in all.
    int64_t end_of(int64_t end, int64_t page_size) const { return end - (first_page - num_far_pages()) * page_size; }
    int64_t num_far_pages() const { return init_pages + count * block_pages; }
};

// The pages of one sequence that a query [heads, head_dim] reads, in the memory of `table` and `end`. num_pages: of the
// store, of which the pages of chosen blocks have to be.
attention::Sequences chosen_pages(const BlockChoice& choice, const attention::Sequences& sequences, const float* query,
                                  int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t num_pages,
                                  std::vector<int32_t>& table, int64_t& end);

}  // namespace qk::fused
