#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "attention/store/put.h"
#include "attention/store/residual.h"
#include "thread_pool.h"
#include "timeline.h"

namespace qk::attention {
namespace {

constexpr float smallest_scale = 0x1p-100f;  // of float8 zeros: any will do whose inverse is finite

// Below this one thread is done before a second one wakes (about 2 us).
constexpr int64_t parallel_size = 1 << 14;

class Appender {
public:
    Appender(Store& store, const Sequences& sequences, const Rotation& rotation, const Kernels& kernels,
             const int64_t* slots)
        : store_(store),
          layout_(store.layout()),
          sequences_(sequences),
          rotation_(rotation),
          kernels_(kernels),
          slots_(slots) {}

    // Token t of the new ones into the side it belongs to; `turned`: keys.
    void put(Side& side, bool is_key, const Heads<const float>& x, int64_t b, int64_t t) {
        const int64_t size = layout_.head_dim, num_heads = store_.num_heads();
        const int64_t later = sequences_.new_tokens(b, x.tokens) - t;  // tokens up to the end, this one included
        int64_t slot = sequences_.end(b, 0) - later;
        auto [page, block] = sequences_.locate(b, slot);
        std::vector<float>& rows = scratch_rows(num_heads * size);
        for (int64_t g = 0; g < num_heads; g++) turn(x.at(sequences_, b, g, t), is_key, b, t, rows.data() + g * size);
        Encoded encoded(layout_);
        const float shared = store_.per_tensor() ? scale_of(rows.data(), num_heads * size) : 0;
        for (int64_t g = 0; g < num_heads; g++) {
            const float* row = rows.data() + g * size;
            const float scale = !is_float8(layout_.format)             ? 0
                                : layout_.scales == Scales::given      ? side.given[g]
                                : layout_.scales == Scales::per_tensor ? shared
                                                                       : scale_of(row, size);
            kernels_.encode(layout_, row, scale, encoded.codes.data(), encoded.scales.data());
            if (slots_ || sequences_.end_heads) {
                slot = slots_ ? slots_[b * num_heads + g] : sequences_.end(b, g) - later;
                std::tie(page, block) = sequences_.locate(b, slot);
            }
            const int64_t token = slot % block_tokens;
            std::byte* codes = side.codes.at(page, g, block);
            is_key ? put_key(layout_, encoded, token, codes) : put_value(layout_, encoded, token, codes);
            if (layout_.has_token_scales())
                put_scales(layout_, encoded, token, side.scales.at(page, store_.per_tensor() ? 0 : g, block));
        }
    }

    void turn(const float* x, bool turns, int64_t b, int64_t t, float* out) const {
        const int64_t size = layout_.head_dim, angles = sequences_.row(b, t).second * size;
        if (turns && rotation_.cos)
            kernels_.rotate(x, rotation_.cos + angles, rotation_.sin + angles, size, out);
        else
            std::copy_n(x, size, out);
    }

private:
    static std::vector<float>& scratch_rows(int64_t size) {
        thread_local std::vector<float> rows;
        rows.resize(static_cast<size_t>(size));
        return rows;
    }

    // The scale that maps the largest magnitude to the largest code; NaN for NaN.
    float scale_of(const float* x, int64_t size) const {
        const float scale = kernels_.absmax(x, size) / (layout_.format == Format::e4m3 ? 448.0f : 57344.0f);
        return scale < smallest_scale ? smallest_scale : scale;
    }

    Store& store_;
    const Layout& layout_;
    const Sequences& sequences_;
    const Rotation& rotation_;
    const Kernels& kernels_;
    const int64_t* slots_;
};

}  // namespace

// Into the blocks of a store, and nothing else.
static void append_blocks(Store& store, const Sequences& sequences, const Heads<const float>& q,
                          const Heads<const float>& k, const Heads<const float>& v, const Rotation& rotation,
                          const Heads<float>& q_out, const Impl<Kernels>& impl, const int64_t* slots) {
    Appender appender(store, sequences, rotation, impl.kernels, slots);
    const auto append_token = [&](int64_t b, int64_t t) {
        appender.put(store.keys(), true, k, b, t);
        appender.put(store.values(), false, v, b, t);
        for (int64_t h = 0; h < q.heads; h++)
            appender.turn(q.at(sequences, b, h, t), true, b, t, q_out.at(sequences, b, h, t));
    };
    // A task has the tokens of one block, so that no two threads write to the same cache line; or a whole sequence, if
    // its heads end in blocks of their own.
    const int64_t runs = sequences.end_heads ? 1 : sequences.most_new_tokens(k.tokens) / block_tokens + 2;
    const auto append_run = [&](int64_t i) {
        const int64_t b = i / runs, num_new = sequences.new_tokens(b, k.tokens);
        if (sequences.end_heads) {
            for (int64_t t = 0; t < num_new; t++) append_token(b, t);
            return;
        }
        const int64_t end = sequences.ends[b], first = end - num_new;
        const int64_t begin = (first / block_tokens + i % runs) * block_tokens;
        for (int64_t t = std::max(begin, first); t < std::min(begin + block_tokens, end); t++)
            append_token(b, t - first);
    };
    if (k.batch * k.tokens * (q.heads + k.heads + v.heads) * k.head_dim >= parallel_size)
        thread_pool()->run(sequences.count * runs, append_run);
    else
        for (int64_t i = 0; i < sequences.count * runs; i++) append_run(i);
}

void append(Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<const float>& k,
            const Heads<const float>& v, const Rotation& rotation, const Heads<float>& q_out, const Impl<Kernels>& impl,
            const int64_t* slots) {
    const timeline::Scope attention(timeline::Part::attention);
    if (!store.ring()) return append_blocks(store, sequences, q, k, v, rotation, q_out, impl, slots);
    for_each_part(store.layout(), sequences, k.tokens, [&](const Part& part) {
        encode_oldest(store, part.sequences, part.of(k).tokens, impl.kernels);
        append_blocks(*store.ring(), in_ring(part.sequences), part.of(q), part.of(k), part.of(v),
                      part.of(rotation, k.head_dim), part.of(q_out), impl, nullptr);
    });
}

}  // namespace qk::attention
