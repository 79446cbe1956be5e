#include "attention/store/residual.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "attention/store/put.h"
#include "half.h"
#include "thread_pool.h"

namespace qk::attention {
namespace {

// A head's keys and values of a group of tokens, from its first one on.
class Group {
public:
    Group(Store& store, const Sequences& sequences, int64_t sequence, int64_t head, int64_t first,
          const Kernels& kernels)
        : store_(store),
          layout_(store.layout()),
          sequences_(sequences),
          sequence_(sequence),
          head_(head),
          first_(first),
          kernels_(kernels) {}

    void encode_keys() {
        const int64_t size = layout_.head_dim;
        std::vector<float> channels(static_cast<size_t>(size * group_tokens));  // [D, tokens]
        for (int64_t i = 0; i < group_tokens; i++) {
            const auto* key = halves(store_.ring()->keys().codes, in_ring(sequences_), i) + (first_ + i) % block_tokens;
            for (int64_t d = 0; d < size; d++) channels[d * group_tokens + i] = half_to_float(key[d * block_tokens]);
        }
        // The channels of a group are encoded as 32 channels of a token are.
        static_assert(group_tokens == int4_group);
        const Layout row{layout_.format, Scales::given, size * group_tokens};
        Encoded all(row), token(layout_);
        kernels_.encode(row, channels.data(), 0, all.codes.data(), all.scales.data());
        for (int64_t i = 0; i < group_tokens; i++) {
            for (int64_t d = 0; d < size; d++) token.codes[d] = all.codes[d * group_tokens + i];
            put_key(layout_, token, (first_ + i) % block_tokens, at(store_.keys().codes, sequences_, i));
        }
        const auto* scales = reinterpret_cast<const uint16_t*>(all.scales.data());  // [D][2]
        auto* scale = reinterpret_cast<uint16_t*>(at(store_.keys().scales, sequences_, 0));
        auto* minimum = reinterpret_cast<uint16_t*>(at(store_.keys().scales, sequences_, block_tokens));
        for (int64_t d = 0; d < size; d++) scale[d] = scales[2 * d], minimum[d] = scales[2 * d + 1];
    }

    void encode_values() {
        const int64_t size = layout_.head_dim;
        std::vector<float> row(static_cast<size_t>(size));
        Encoded token(layout_);
        for (int64_t i = 0; i < group_tokens; i++) {
            const int64_t place = (first_ + i) % block_tokens;
            const auto* value = halves(store_.ring()->values().codes, in_ring(sequences_), i) + place * size;
            for (int64_t d = 0; d < size; d++) row[d] = half_to_float(value[d]);
            kernels_.encode(layout_, row.data(), 0, token.codes.data(), token.scales.data());
            put_value(layout_, token, place, at(store_.values().codes, sequences_, i));
            put_scales(layout_, token, place, at(store_.values().scales, sequences_, i));
        }
    }

private:
    // The block of the group's token i.
    std::byte* at(Blocks& blocks, const Sequences& sequences, int64_t i) const {
        const auto [page, block] = sequences.locate(sequence_, first_ + i);
        return blocks.at(page, head_, block);
    }
    const uint16_t* halves(Blocks& blocks, const Sequences& sequences, int64_t i) const {
        return reinterpret_cast<const uint16_t*>(at(blocks, sequences, i));
    }

    Store& store_;
    const Layout& layout_;
    const Sequences& sequences_;
    int64_t sequence_, head_, first_;
    const Kernels& kernels_;
};

}  // namespace

void encode_oldest(Store& store, const Sequences& sequences, int64_t tokens, const Kernels& kernels) {
    const Layout& layout = store.layout();
    std::vector<int64_t> which;
    for (int64_t b = 0; b < sequences.count; b++) {
        const int64_t end = sequences.end(b, 0), start = end - sequences.new_tokens(b, tokens);
        if (layout.num_encoded(end) > layout.num_encoded(start)) which.push_back(b);
    }
    if (which.empty()) return;
    const int64_t heads = store.num_heads();
    thread_pool()->run(static_cast<int64_t>(which.size()) * heads, [&](int64_t i) {
        const int64_t b = which[i / heads], first = layout.num_encoded(sequences.end(b, 0)) - group_tokens;
        Group group(store, sequences, b, i % heads, first, kernels);
        group.encode_keys();
        group.encode_values();
    });
}

Isa append_attend(Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<const float>& k,
                  const Heads<const float>& v, const Rotation& rotation, const Heads<float>& q_out,
                  const Heads<float>& out, float softmax_scale, int64_t window, const Impl<Kernels>& impl,
                  const Sinks& sinks, const int64_t* slots, const Observed& observed) {
    Isa ran{};
    for_each_part(store.layout(), sequences, k.tokens, [&](const Part& part) {
        if (!part.is_all && (observed.lse || observed.mass))
            throw std::invalid_argument("lse, mass: got more new tokens than pass at once, expected neither");
        const Heads<float> turned = part.of(q_out);
        append(store, part.sequences, part.of(q), part.of(k), part.of(v), part.of(rotation, k.head_dim), turned, impl,
               slots);
        ran = attend(store, part.sequences, read_only(turned), part.of(out), softmax_scale, window, impl, sinks,
                     observed);
    });
    return ran;
}

void truncate(Store& store, const Sequences& sequences, const int64_t* held, const Impl<Kernels>& impl) {
    const Layout& layout = store.layout();
    Store& ring = *store.ring();
    const int64_t size = layout.head_dim, heads = store.num_heads();
    std::vector<float> k(static_cast<size_t>(heads * group_tokens * size)), v(k.size());
    for (int64_t b = 0; b < sequences.count; b++) {
        const Sequences one = sequences.one(b, sequences.ends + b);
        const int64_t last = std::min(held[b], layout.num_encoded(sequences.end(b, 0)));
        for (int64_t first = layout.num_encoded(held[b]); first < last; first += group_tokens) {
            const int64_t count = std::min(group_tokens, last - first), end = first + count;
            const Heads<float> keys{k.data(), 1, heads, count, size, 0, group_tokens * size, size};
            Heads<float> values = keys;
            values.data = v.data();
            read(store, one, keys, values, first);
            Heads<const float> no_queries = read_only(keys);
            no_queries.heads = 0;
            Sequences target = in_ring(one);
            target.ends = &end;
            append(ring, target, no_queries, read_only(keys), read_only(values), {nullptr, nullptr}, {}, impl);
        }
    }
}

}  // namespace qk::attention
