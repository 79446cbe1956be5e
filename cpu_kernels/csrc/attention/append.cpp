#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "thread_pool.h"

namespace qk::attention {
namespace {

constexpr float smallest_scale = 0x1p-100f;  // of float8 zeros: any will do whose inverse is finite

// Below this one thread is done before a second one wakes (about 2 us).
constexpr int64_t parallel_size = 1 << 14;

// Codes of one token and head, one a byte for integers, and its scales.
struct Encoded {
    std::vector<std::byte> codes, scales;

    explicit Encoded(const Layout& layout)
        : codes(static_cast<size_t>(layout.format == Format::int4 ? layout.head_dim : layout.row_bytes())),
          scales(static_cast<size_t>(std::max<int64_t>(4, 4 * layout.groups()))) {}
};

template <class Code>
void scatter(const std::byte* from, int64_t size, int64_t run, int64_t token, std::byte* block) {
    const auto* codes = reinterpret_cast<const Code*>(from);
    auto* to = reinterpret_cast<Code*>(block) + token * run;
    for (int64_t d = 0; d < size; d += run, to += run * block_tokens)
        for (int64_t i = 0; i < run; i++) to[i] = codes[d + i];
}

void put_key(const Layout& layout, const Encoded& encoded, int64_t token, std::byte* block) {
    const auto* codes = reinterpret_cast<const uint8_t*>(encoded.codes.data());
    switch (layout.format) {
        case Format::f32: scatter<uint32_t>(encoded.codes.data(), layout.head_dim, 1, token, block); break;
        case Format::f16:
        case Format::bf16: scatter<uint16_t>(encoded.codes.data(), layout.head_dim, 1, token, block); break;
        case Format::e4m3:
        case Format::e5m2: scatter<uint8_t>(encoded.codes.data(), layout.head_dim, 1, token, block); break;
        case Format::int8: scatter<uint8_t>(encoded.codes.data(), layout.head_dim, 2, token, block); break;
        case Format::int4: {
            auto* to = reinterpret_cast<uint8_t*>(block) + token * 2;
            for (int64_t d = 0; d < layout.head_dim; d += 4, to += 2 * block_tokens)
                for (int64_t j = 0; j < 2; j++) to[j] = static_cast<uint8_t>(codes[d + j] | codes[d + 2 + j] << 4);
            break;
        }
    }
}

void put_value(const Layout& layout, const Encoded& encoded, int64_t token, std::byte* block) {
    if (layout.format != Format::int4) {
        std::memcpy(block + token * layout.row_bytes(), encoded.codes.data(), static_cast<size_t>(layout.row_bytes()));
        return;
    }
    const auto* codes = reinterpret_cast<const uint8_t*>(encoded.codes.data());
    auto* to = reinterpret_cast<uint8_t*>(block) + token * layout.row_bytes();
    for (int64_t d = 0; d < layout.head_dim; d += int4_group, to += int4_group / 2)
        for (int64_t j = 0; j < int4_group / 2; j++)
            to[j] = static_cast<uint8_t>(codes[d + j] | codes[d + int4_group / 2 + j] << 4);
}

void put_scales(const Layout& layout, const Encoded& encoded, int64_t token, std::byte* block) {
    if (is_float8(layout.format) && layout.has_token_scales())
        std::memcpy(block + 4 * token, encoded.scales.data(), 4);
    else
        scatter<uint16_t>(encoded.scales.data(), 2 * layout.groups(), 1, token, block);
}

class Appender {
public:
    Appender(Store& store, const Sequences& sequences, const Rotation& rotation, const Kernels& kernels)
        : store_(store), layout_(store.layout()), sequences_(sequences), rotation_(rotation), kernels_(kernels) {}

    // Token t of the new ones into the side it belongs to; `turned`: keys.
    void put(Side& side, bool is_key, const Heads<const float>& x, int64_t b, int64_t t) {
        const int64_t size = layout_.head_dim, num_heads = store_.num_heads();
        const auto [page, block] = sequences_.locate(b, position(b, t, x.tokens));
        const int64_t token = position(b, t, x.tokens) % block_tokens;
        std::vector<float>& rows = scratch_rows(num_heads * size);
        for (int64_t g = 0; g < num_heads; g++) turn(x.at(b, g, t), is_key, t, rows.data() + g * size);
        Encoded encoded(layout_);
        const float shared = store_.per_tensor() ? scale_of(rows.data(), num_heads * size) : 0;
        for (int64_t g = 0; g < num_heads; g++) {
            const float* row = rows.data() + g * size;
            const float scale = !is_float8(layout_.format)              ? 0
                                : layout_.scales == Scales::given       ? side.given[g]
                                : layout_.scales == Scales::per_tensor ? shared
                                                                        : scale_of(row, size);
            kernels_.encode(layout_, row, scale, encoded.codes.data(), encoded.scales.data());
            std::byte* codes = side.codes.at(page, g, block);
            is_key ? put_key(layout_, encoded, token, codes) : put_value(layout_, encoded, token, codes);
            if (layout_.has_token_scales())
                put_scales(layout_, encoded, token, side.scales.at(page, store_.per_tensor() ? 0 : g, block));
        }
    }

    void turn(const float* x, bool turns, int64_t t, float* out) const {
        const int64_t size = layout_.head_dim;
        if (turns && rotation_.cos)
            kernels_.rotate(x, rotation_.cos + t * size, rotation_.sin + t * size, size, out);
        else
            std::copy_n(x, size, out);
    }

private:
    int64_t position(int64_t b, int64_t t, int64_t tokens) const { return sequences_.lengths[b] - tokens + t; }

    static std::vector<float>& scratch_rows(int64_t size) {
        thread_local std::vector<float> rows;
        rows.resize(static_cast<size_t>(size));
        return rows;
    }

    // What brings the largest magnitude to the largest code; NaN of NaN.
    float scale_of(const float* x, int64_t size) const {
        const float scale = kernels_.absmax(x, size) / (layout_.format == Format::e4m3 ? 448.0f : 57344.0f);
        return scale < smallest_scale ? smallest_scale : scale;
    }

    Store& store_;
    const Layout& layout_;
    const Sequences& sequences_;
    const Rotation& rotation_;
    const Kernels& kernels_;
};

}  // namespace

void append(Store& store, const Sequences& sequences, const Heads<const float>& q, const Heads<const float>& k,
            const Heads<const float>& v, const Rotation& rotation, const Heads<float>& q_out,
            const Impl<Kernels>& impl) {
    Appender appender(store, sequences, rotation, impl.kernels);
    const auto append_token = [&](int64_t b, int64_t t) {
        appender.put(store.keys(), true, k, b, t);
        appender.put(store.values(), false, v, b, t);
        for (int64_t h = 0; h < q.heads; h++) appender.turn(q.at(b, h, t), true, t, q_out.at(b, h, t));
    };
    // A task is what falls into one block, so that no two threads write to the same cache line.
    const int64_t runs = k.tokens / block_tokens + 2;
    const auto append_run = [&](int64_t i) {
        const int64_t b = i / runs, first = sequences.lengths[b] - k.tokens;
        const int64_t begin = (first / block_tokens + i % runs) * block_tokens;
        for (int64_t t = std::max(begin, first); t < std::min(begin + block_tokens, first + k.tokens); t++)
            append_token(b, t - first);
    };
    if (k.batch * k.tokens * (q.heads + k.heads + v.heads) * k.head_dim >= parallel_size)
        thread_pool()->run(k.batch * runs, append_run);
    else
        for (int64_t i = 0; i < k.batch * runs; i++) append_run(i);
}

}  // namespace qk::attention
