// Pages of keys and values, and which pages hold which sequence.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "attention/store/layout.h"
#include "buffer.h"
#include "isa.h"

namespace qk::attention {

// Codes, or scales, of all pages: [pages][heads][page_size / 16] blocks of `block_bytes` each.
class Blocks {
public:
    // Throws std::invalid_argument where their bytes are more than an int64.
    Blocks(int64_t num_pages, int64_t heads, int64_t blocks_per_page, int64_t block_bytes);

    std::byte* at(int64_t page, int64_t head, int64_t block) {
        return data() + ((page * heads_ + head) * blocks_per_page_ + block) * block_bytes_;
    }
    const std::byte* at(int64_t page, int64_t head, int64_t block) const {
        return const_cast<Blocks*>(this)->at(page, head, block);
    }
    size_t size() const { return buffer_.size(); }
    size_t page_bytes() const { return static_cast<size_t>(heads_ * blocks_per_page_ * block_bytes_); }

    void copy_page(int64_t from, int64_t to);

    // The same pages, and more.
    void add_pages(int64_t num_pages);

    // The same blocks in larger pages.
    void resize(int64_t num_pages, int64_t blocks_per_page);

private:
    std::byte* data() { return reinterpret_cast<std::byte*>(buffer_.data()); }

    int64_t heads_, blocks_per_page_, block_bytes_;
    Buffer buffer_;
};

// Keys or values of one layer.
struct Side {
    Blocks codes;
    Blocks scales;
    std::vector<float> given;  // one per head: the scale of float8 if tokens have no scales, else 1

    Block block(int64_t page, int64_t head, int64_t index, bool per_tensor) const {
        return {codes.at(page, head, index), scales.at(page, per_tensor ? 0 : head, index)};
    }
};

// With a residual, a sequence has a ring, in which token t has place t % ring_tokens, and blocks for its encoded tokens.
// Either a page holds a sequence, with the ring, and blocks for the tokens that are encoded if page_size tokens are
// held; or there are num_rings rings apart from the pages, and a sequence has a ring and any number of pages.
class Store {
public:
    // page_size: tokens, a multiple of block_tokens; k_scale, v_scale: one per head, or empty; num_rings: 0 without rings
    // of their own
    Store(const Layout& layout, int64_t num_pages, int64_t page_size, int64_t num_heads, std::vector<float> k_scale,
          std::vector<float> v_scale, int64_t num_rings = 0);

    const Layout& layout() const { return layout_; }
    int64_t num_pages() const { return num_pages_; }
    int64_t page_size() const { return page_size_; }
    int64_t num_heads() const { return num_heads_; }
    int64_t num_rings() const { return num_rings_; }
    size_t nbytes() const;
    bool per_tensor() const { return layout_.scales == Scales::per_tensor; }

    Side& keys() { return keys_; }
    Side& values() { return values_; }
    const Side& keys() const { return keys_; }
    const Side& values() const { return values_; }

    // The rings, as a float16 store of pages of ring_tokens; null if the format has no residual.
    Store* ring() { return ring_.get(); }
    const Store* ring() const { return ring_.get(); }

    // From now on no tiles multiply it, so that a query's result does not depend on the queries next to it. Called before
    // anyone else has the store.
    void require_exact() { is_exact_ = true; }
    bool is_exact() const { return is_exact_; }

    void resize(int64_t page_size);

    // So many pages from now on, those that there are among them.
    void add_pages(int64_t num_pages);

    // All that one page holds into another, without rings that are apart.
    void copy_page(int64_t from, int64_t to);

    // All that a page holds, to memory of page_bytes() and from there.
    size_t page_bytes() const;
    void read_page(int64_t page, std::byte* to) const;
    void write_page(int64_t page, const std::byte* from);

    std::atomic<std::optional<Isa>> last_isa{};  // kernel of the last attend over it

private:
    // One in each page; null if rings are apart, and in a format without a residual.
    Store* page_rings() const { return num_rings_ ? nullptr : ring_.get(); }

    Layout layout_;
    int64_t num_pages_, page_size_, num_heads_, num_rings_;
    Side keys_, values_;
    std::unique_ptr<Store> ring_;
    bool is_exact_ = false;
};

// Sequence b has its tokens [i * page_size, (i + 1) * page_size) in page table[b][i]; in a store whose rings are apart
// from the pages it has table[b][0] as its ring, and its encoded tokens in the pages behind.
//
// A call brings T new tokens to each sequence, [count, T] of them; or, where `cu_seqlens` is not null, to each its own
// number: rows cu_seqlens[b] up to cu_seqlens[b + 1] of [1, N] are those of sequence b.
struct Sequences {
    const int32_t* table;  // [count, pages] or [count, table_heads, pages]
    const int64_t* ends;  // [count] or [count, end_heads]: tokens held, those of the call included
    int64_t count, pages;
    int64_t page_size;
    const int64_t* cu_seqlens = nullptr;  // [count + 1], each larger than the one before
    int64_t end_heads = 0;  // kv heads, if each has an end of its own; 0: the heads of a sequence share it
    bool in_ring = false;   // token t has the place of token t % page_size
    int64_t table_heads = 0;  // kv heads, if each has pages of its own; 0: the heads of a sequence share them
    int64_t ring_columns = 0;  // columns of the table before its pages

    // Sequence b alone, with another end.
    Sequences one(int64_t b, const int64_t* end) const {
        Sequences alone = *this;
        alone.table += b * pages;
        alone.ends = end;
        alone.count = 1;
        alone.cu_seqlens = nullptr;
        return alone;
    }

    int64_t end(int64_t sequence, int64_t head) const {
        return end_heads ? ends[sequence * end_heads + head] : ends[sequence];
    }

    int64_t num_ends() const { return count * std::max<int64_t>(1, end_heads); }
    int64_t new_tokens(int64_t sequence, int64_t tokens) const {
        return cu_seqlens ? cu_seqlens[sequence + 1] - cu_seqlens[sequence] : tokens;
    }
    // Place of a sequence's new token among the call's: batch and token.
    std::pair<int64_t, int64_t> row(int64_t sequence, int64_t token) const {
        return cu_seqlens ? std::pair{int64_t{0}, cu_seqlens[sequence] + token} : std::pair{sequence, token};
    }
    int64_t most_new_tokens(int64_t tokens) const {
        int64_t most = cu_seqlens ? 0 : tokens;
        for (int64_t b = 0; cu_seqlens && b < count; b++) most = std::max(most, new_tokens(b, tokens));
        return most;
    }

    const int32_t* pages_of(int64_t sequence, int64_t head) const {
        return table + (table_heads ? sequence * table_heads + head : sequence) * pages;
    }

    // Page and block in it of the block that holds a token of a head.
    std::pair<int64_t, int64_t> locate(int64_t sequence, int64_t token, int64_t head = 0) const {
        const int32_t* const row = pages_of(sequence, head);
        if (in_ring) return {row[0], token % page_size / block_tokens};
        return {row[ring_columns + token / page_size], token % page_size / block_tokens};
    }
};

}  // namespace qk::attention
