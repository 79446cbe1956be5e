// Arguments of a KVStore from Python, checked.
#pragma once

#include <cmath>
#include <vector>

#include "attention/arguments.h"
#include "attention/store/residual.h"

namespace qk::attention {

inline std::vector<float> given_scale(const std::optional<Array>& scale, const char* name, int64_t num_heads) {
    if (!scale) return {};
    require_vector(*scale, name, nb::dtype<float>(), "float32 [G or 1]");
    const auto count = static_cast<int64_t>(scale->shape(0));
    if (count != 1 && count != num_heads)
        throw std::invalid_argument(std::string(name) + ": got " + describe(*scale) + ", expected 1 or " +
                                    std::to_string(num_heads) + " scales");
    const auto* data = static_cast<const float*>(scale->data());
    for (int64_t i = 0; i < count; i++)
        if (!(data[i] > 0) || std::isinf(data[i]))
            throw std::invalid_argument(std::string(name) + ": got " + std::to_string(data[i]) +
                                        ", expected numbers above 0");
    std::vector<float> all(static_cast<size_t>(num_heads));
    for (int64_t g = 0; g < num_heads; g++) all[g] = data[count == 1 ? 0 : g];
    return all;
}

inline Layout layout_of(const std::string& format, int64_t head_dim, const std::string& scales) {
    Layout layout{parse_format(format), Scales::given, head_dim};
    if (scales == "per_head")
        layout.scales = Scales::per_head;
    else if (scales == "per_tensor")
        layout.scales = Scales::per_tensor;
    else if (scales != "given")
        throw std::invalid_argument("scales: got " + scales + ", expected given, per_head or per_tensor");
    if (!holds(layout.format, head_dim))
        throw std::invalid_argument("head_dim: got " + std::to_string(head_dim) + ", expected " +
                                    held_heads(layout.format));
    return layout;
}

inline int64_t require_positive(int64_t value, const char* name) {
    if (value < 1)
        throw std::invalid_argument(std::string(name) + ": got " + std::to_string(value) + ", expected 1 or more");
    return value;
}

inline int64_t require_rings(int64_t num_rings, const Layout& layout) {
    if (num_rings < 0 || (num_rings > 0 && !layout.has_residual()))
        throw std::invalid_argument("num_rings: got " + std::to_string(num_rings) + " for format " +
                                    format_names[static_cast<int>(layout.format)] +
                                    ", expected 0, or more for kivi2 and kivi4");
    return num_rings;
}

inline int64_t require_page_size(int64_t page_size) {
    if (page_size < 1 || page_size % block_tokens)
        throw std::invalid_argument("page_size: got " + std::to_string(page_size) + ", expected a multiple of " +
                                    std::to_string(block_tokens));
    return page_size;
}

// In a store with a residual the heads of a sequence hold the same tokens, in one page if its ring is there.
inline void require_one_page(const Store& store, const Sequences& sequences) {
    if (!store.ring()) return;
    if (sequences.end_heads)
        throw std::invalid_argument("ends: got [B, G], expected [B], as the heads of a token are encoded together");
    if (sequences.table_heads && store.num_rings())
        throw std::invalid_argument("block_table: got [B, G, pages], expected [B, 1 + pages], as heads share a ring");
    for (int64_t b = 0; b < sequences.count && !store.num_rings(); b++)
        if (sequences.ends[b] > sequences.page_size)
            throw std::invalid_argument("ends: got " + std::to_string(sequences.ends[b]) + " tokens in pages of " +
                                        std::to_string(sequences.page_size) +
                                        ", expected one page for each sequence, as its tokens are encoded together");
}

// In a store with a residual all of a sequence's `tokens` new queries have to see the same tokens encoded.
inline void require_one_run(const Store& store, const Sequences& sequences, int64_t tokens) {
    if (!store.ring()) return;
    for (int64_t b = 0; b < sequences.count; b++) {
        const int64_t end = sequences.ends[b], start = end - sequences.new_tokens(b, tokens);
        const int64_t most = end_of_run(store.layout(), start);
        if (end > most)
            throw std::invalid_argument("q: got tokens " + std::to_string(start) + " to " + std::to_string(end - 1) +
                                        ", expected none from " + std::to_string(most) +
                                        " on, before which a group is encoded; append_attend takes any number");
    }
}

// Slots of tokens that share a scale over heads are the same for all heads: rows [heads, count].
inline void require_same_slots(const Store& store, const char* name, const int64_t* slots, int64_t count) {
    for (int64_t g = 1; store.per_tensor() && g < store.num_heads(); g++)
        if (!std::equal(slots, slots + count, slots + g * count))
            throw std::invalid_argument(std::string(name) + ": got other slots for head " + std::to_string(g) +
                                        " than for head 0, expected the same: the heads of a token share a scale");
}

// [B, G, n] int64: the slots below num_held that each head keeps, rising; -1 after the last one of a shorter head.
inline const int64_t* keep_of(const Array& array, const Store& store, const Sequences& sequences) {
    const int64_t heads = store.num_heads(), count = static_cast<int64_t>(array.shape(2));
    const auto* keep = static_cast<const int64_t*>(array.data());
    for (int64_t b = 0; b < sequences.count; b++) {
        for (int64_t g = 0; g < heads; g++) {
            const int64_t* slots = keep + (b * heads + g) * count;
            for (int64_t i = 0; i < count; i++) {
                const bool rises = i == 0 || (slots[i - 1] >= 0 && slots[i] > slots[i - 1]);
                if (slots[i] == -1 || (slots[i] >= 0 && rises && slots[i] < sequences.end(b, g))) continue;
                throw std::invalid_argument(
                    "keep: got slot " + std::to_string(slots[i]) + (i ? " after " + std::to_string(slots[i - 1]) : "") +
                    ", expected rising slots from 0 to " + std::to_string(sequences.end(b, g) - 1) + ", then -1");
            }
        }
        require_same_slots(store, "keep", keep + b * heads * count, count);
    }
    return keep;
}

}  // namespace qk::attention
