#include "attention/arguments.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <string>

#include "bindings.h"
#include "fused/attention/arguments.h"
#include "fused/group/linear_group.h"
#include "timeline.h"

namespace qk::fused {
namespace {

using namespace nb::literals;

// The weight [D] of a norm of heads, or null.
const float* head_norm(const std::optional<Array>& weight, const char* name, int64_t head_dim) {
    return weight ? vector_of(*weight, name, head_dim) : nullptr;
}

nb::object run_attention_step(const LinearGroup& qkv, const LinearGroup& output, nb::handle kv_store, const Array& x,
                              const Array& cos, const Array& sin, const Array& table, const Array& ends,
                              float softmax_scale, const std::optional<Array>& norm_weight, float eps,
                              const std::optional<Array>& residual, const std::optional<Array>& q_norm,
                              const std::optional<Array>& k_norm, float head_eps, int64_t window,
                              const std::optional<Array>& cu_seqlens, const std::optional<Array>& slots,
                              nb::handle mass, int64_t mass_queries, int64_t sinks,
                              const std::optional<Array>& sink_cos, const std::optional<Array>& sink_sin) {
    const timeline::Scope calls(timeline::Part::calls);
    attention::Store& store = attention::store_of(kv_store);
    require_attention(qkv.group(), output.group(), store);
    const Source source(x, qkv.group().row_size(), norm_weight, eps);
    const int64_t count = source.x.count, head_dim = store.layout().head_dim;
    const auto [batch, tokens] = shape_of(ends, x, count, cu_seqlens.has_value());
    const auto sequences = attention::sequences_of(kv_store, table, ends, batch, tokens, window, cu_seqlens, sinks);
    const AttentionStep step{&qkv.group(),
                             &output.group(),
                             source.x,
                             source.norm,
                             {head_norm(q_norm, "q_norm", head_dim), head_norm(k_norm, "k_norm", head_dim), head_eps},
                             &store,
                             sequences,
                             rotation_of(cos, sin, tokens, head_dim),
                             softmax_scale,
                             require_window(window),
                             sinks_of(sinks, sink_cos, sink_sin, tokens, store),
                             slots ? attention::slots_of(*slots, store, sequences, tokens) : nullptr,
                             attention::mass_of(mass, mass_queries, sequences, store.num_heads())};
    const Rows added = residual_of(residual, count, output.group().num_rows(0));
    const AttentionChoices choices{qkv.group().choose(count), output.group().choose(count),
                                   choose_steps(std::nullopt).kernels, &attention::choose_attention()};
    float* out = nullptr;
    nb::object result = empty_float32(count, output.group().num_rows(0), &out);
    {
        nb::gil_scoped_release release;
        if (count > 0) attention_step(step, added, out, choices);
    }
    return result;
}

}  // namespace

void bind_attention(nb::module_& m) {
    m.def("attention_step", run_attention_step, "qkv"_a, "output"_a, "store"_a, "x"_a, "cos"_a, "sin"_a,
          "block_table"_a, "ends"_a, "softmax_scale"_a, "norm_weight"_a = nb::none(), "eps"_a = 0.0f,
          "residual"_a = nb::none(), "q_norm"_a = nb::none(), "k_norm"_a = nb::none(), "head_eps"_a = 0.0f,
          "window"_a = 0, "cu_seqlens"_a = nb::none(), "slots"_a.none() = nb::none(), "mass"_a.none() = nb::none(),
          "mass_queries"_a = 0, "sinks"_a = 0, "sink_cos"_a = nb::none(), "sink_sin"_a = nb::none(),
          "attention(norm(x)) @ output.T (+ bias) (+ residual); keys and values become the store's last tokens.\n\n"
          "qkv          LinearGroup of q [H D, K], k and v [G D, K]\n"
          "output       LinearGroup of one [N, H D]\n"
          "store        KVStore; cos, sin, block_table, ends, softmax_scale, window, cu_seqlens as its methods take "
          "them\n"
          "x            [B * T, K] float32, each row contiguous; sequence after sequence; of a varlen call [N, K]\n"
          "norm_weight, eps, residual    as for LinearGroup.multiply\n"
          "slots, mass, mass_queries     as append and attend of the store take them\n"
          "sinks        the first tokens, which each query sees, too; 0: none\n"
          "sink_cos, sink_sin    [T, D] float32, as cos and sin: queries are turned by them for the keys of sinks\n"
          "q_norm, k_norm    [D] float32: heads are normed with them and head_eps before they are turned\n"
          "returns      float32, as many rows as x\n"
          "raises       ValueError (shape, strides, ends, pages), TypeError (dtype)");
}

}  // namespace qk::fused
