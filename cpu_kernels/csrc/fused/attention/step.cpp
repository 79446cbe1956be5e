#include "fused/attention/step.h"

#include "scratch.h"
#include "thread_pool.h"
#include "timeline.h"

namespace qk::fused {
namespace {

// Norms every head of x [num_tokens, heads * D] in place.
void norm_heads(float* x, int64_t num_tokens, int64_t row_size, int64_t head_dim, const Norm& norm,
                const RowSteps& steps) {
    const auto norm_token = [&](int64_t token) {
        float* row = x + token * row_size;
        for (int64_t i = 0; i < row_size; i += head_dim)
            steps.rms_norm(row + i, norm.weight, norm.eps, head_dim, row + i);
    };
    const timeline::Scope norms(timeline::Part::norms);
    constexpr int64_t parallel_size = 1 << 15;  // as for other rows: about 10 us of work
    if (num_tokens * row_size >= parallel_size)
        thread_pool()->run(num_tokens, norm_token);
    else
        for (int64_t token = 0; token < num_tokens; token++) norm_token(token);
}

// q [tokens, heads * D] by the angles of each token -> turned. A varlen call has angles for each of its tokens.
void turn_heads(const float* q, int64_t num_tokens, int64_t tokens, int64_t row_size, int64_t head_dim,
                const attention::Rotation& rotation, const attention::Kernels& kernels, float* turned) {
    for (int64_t token = 0; token < num_tokens; token++) {
        const int64_t angles = token % tokens * head_dim;
        for (int64_t i = token * row_size; i < (token + 1) * row_size; i += head_dim)
            kernels.rotate(q + i, rotation.cos + angles, rotation.sin + angles, head_dim, turned + i);
    }
}

template <class Value>
attention::Heads<Value> heads_of(Value* data, int64_t batch, int64_t tokens, int64_t row_size, int64_t head_dim) {
    return {data, batch, row_size / head_dim, tokens, head_dim, tokens * row_size, head_dim, row_size};
}

}  // namespace

void attention_step(const AttentionStep& step, const Rows& residual, float* out, const AttentionChoices& choices) {
    const int64_t count = step.x.count, batch = step.sequences.cu_seqlens ? 1 : step.sequences.count;
    const int64_t tokens = count / batch;
    const int64_t head_dim = step.store->layout().head_dim;
    const int64_t q_size = step.qkv->num_rows(0), kv_size = step.qkv->num_rows(1);

    thread_local Scratch scratch;
    const int64_t far_size = step.sinks.count > 0 ? q_size : 0;
    float* const q = scratch.floats(static_cast<size_t>(count * (2 * (q_size + kv_size) + far_size)));
    float* const turned = q + count * q_size;
    float* const k = turned + count * q_size;
    float* const v = k + count * kv_size;
    float* const far = v + count * kv_size;

    float* const y[] = {q, k, v};
    step.qkv->multiply(source_of(step.x, step.norm, choices.steps), count, choices.qkv, y, {});
    const HeadNorms& norms = step.head_norms;
    if (norms.q) norm_heads(q, count, q_size, head_dim, {norms.q, norms.eps}, choices.steps);
    if (norms.k) norm_heads(k, count, kv_size, head_dim, {norms.k, norms.eps}, choices.steps);

    attention::Sinks sinks;
    if (step.sinks.count > 0) {
        turn_heads(q, count, tokens, q_size, head_dim, step.sinks.rotation, choices.attention->kernels, far);
        sinks = {step.sinks.count, heads_of<const float>(far, batch, tokens, q_size, head_dim)};
    }
    float* const attended = q;  // queries are of no more use after their rotation
    const auto q_heads = heads_of<const float>(q, batch, tokens, q_size, head_dim);
    const auto k_heads = heads_of<const float>(k, batch, tokens, kv_size, head_dim);
    const auto v_heads = heads_of<const float>(v, batch, tokens, kv_size, head_dim);
    const auto turned_heads = heads_of<float>(turned, batch, tokens, q_size, head_dim);
    const auto out_heads = heads_of<float>(attended, batch, tokens, q_size, head_dim);
    if (step.choice) {
        thread_local std::vector<int32_t> table;
        int64_t end = 0;
        attention::append(*step.store, step.sequences, q_heads, k_heads, v_heads, step.rotation, turned_heads,
                          *choices.attention, step.slots);
        const attention::Sequences chosen =
            chosen_pages(*step.choice, step.sequences, far_size ? far : turned, q_size / head_dim, kv_size / head_dim,
                         head_dim, step.store->num_pages(), table, end);
        step.store->last_isa =
            attention::attend(*step.store, chosen, attention::read_only(turned_heads), out_heads, step.softmax_scale,
                              step.window, *choices.attention, sinks, step.observed);
    } else {
        step.store->last_isa = attention::append_attend(
            *step.store, step.sequences, q_heads, k_heads, v_heads, step.rotation, turned_heads, out_heads,
            step.softmax_scale, step.window, *choices.attention, sinks, step.slots, step.observed);
    }

    float* const outputs[] = {out};
    step.output->multiply(source_of({attended, count, q_size, q_size}, std::nullopt, choices.steps), count,
                          choices.output, outputs, residual);
    scratch.trim();
}

}  // namespace qk::fused
