// Arguments of the bindings that attend, checked.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "fused/arguments.h"
#include "fused/attention/step.h"

namespace qk::fused {

inline void require_attention(const Group& qkv, const Group& output, const attention::Store& store) {
    const int64_t head_dim = store.layout().head_dim, kv_size = store.num_heads() * head_dim;
    if (qkv.size() != 3 || output.size() != 1)
        throw std::invalid_argument("attention: got groups of " + std::to_string(qkv.size()) + " and " +
                                    std::to_string(output.size()) + " linears, expected 3 and 1");
    if (qkv.num_rows(1) != kv_size || qkv.num_rows(2) != kv_size)
        throw std::invalid_argument("attention: k has " + std::to_string(qkv.num_rows(1)) + " rows, v " +
                                    std::to_string(qkv.num_rows(2)) + ", expected " + std::to_string(kv_size) +
                                    " as the store has them");
    if (qkv.num_rows(0) % kv_size != 0 || output.row_size() != qkv.num_rows(0))
        throw std::invalid_argument("attention: q has " + std::to_string(qkv.num_rows(0)) + " rows and output reads " +
                                    std::to_string(output.row_size()) + ", expected one multiple of " +
                                    std::to_string(kv_size) + " for both");
}

// Batch and tokens of [B, T], as which x [count, K] is read: as many tokens for each of ends [B] or [B, G]; of a varlen
// call one row of all of them.
struct Shape { int64_t batch, tokens; };

inline Shape shape_of(const Array& ends, const Array& x, int64_t count, bool varlen) {
    if (ends.ndim() != 1 && ends.ndim() != 2)
        throw std::invalid_argument("ends: got " + describe(ends) + ", expected int64 [B] or [B, G]");
    if (varlen) return {1, count};
    const auto batch = static_cast<int64_t>(ends.shape(0));
    if (batch == 0 || count % batch != 0)
        throw std::invalid_argument("x: got " + describe(x) + ", expected tokens for each of " + std::to_string(batch) +
                                    " sequences");
    return {batch, count / batch};
}

inline int64_t require_window(int64_t window) {
    if (window < 0) throw std::invalid_argument("window: got " + std::to_string(window) + ", expected 0 or more");
    return window;
}

inline attention::Rotation rotation_of(const Array& cos, const Array& sin, int64_t tokens, int64_t head_dim) {
    for (const auto& [angles, name] : {std::pair{&cos, "cos"}, {&sin, "sin"}})
        require_shape(*angles, name, nb::dtype<float>(), "float32", tokens, head_dim);
    return {static_cast<const float*>(cos.data()), static_cast<const float*>(sin.data())};
}

// sinks above 0 come with cos and sin of their own, for stores that keep each token by itself.
inline SinkAngles sinks_of(int64_t sinks, const std::optional<Array>& cos, const std::optional<Array>& sin,
                           int64_t tokens, const attention::Store& store) {
    if (sinks < 0 || (sinks > 0) != cos.has_value() || (sinks > 0) != sin.has_value())
        throw std::invalid_argument("sinks: got " + std::to_string(sinks) +
                                    ", expected 0, or more with sink_cos and sink_sin");
    if (sinks == 0) return {};
    attention::require_sinks(store, sinks);
    return {sinks, rotation_of(*cos, *sin, tokens, store.layout().head_dim)};
}

}  // namespace qk::fused
