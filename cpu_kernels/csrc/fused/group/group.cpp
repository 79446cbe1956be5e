#include "fused/group/group.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "scratch.h"

namespace qk::fused {

using linear::Choice;
using linear::InputFormat;
using linear::RowSource;
using linear::Term;
using linear::Weight;

Group::Group(std::vector<std::shared_ptr<const Weight>> weights, std::vector<std::vector<float>> biases)
    : weights_(std::move(weights)), biases_(std::move(biases)) {
    if (weights_.empty()) throw std::invalid_argument("linears: got none, expected 1 or more");
    if (biases_.size() != weights_.size())
        throw std::invalid_argument("biases: got " + std::to_string(biases_.size()) +
                                    ", expected one or None for each of " + std::to_string(weights_.size()) +
                                    " linears");
    for (size_t i = 0; i < weights_.size(); i++) {
        if (weights_[i]->row_size() != row_size())
            throw std::invalid_argument("linears: got rows of " + std::to_string(row_size()) + " and of " +
                                        std::to_string(weights_[i]->row_size()) + ", expected one input for all");
        if (!biases_[i].empty() && static_cast<int64_t>(biases_[i].size()) != num_rows(i))
            throw std::invalid_argument("biases: got " + std::to_string(biases_[i].size()) + " values, expected " +
                                        std::to_string(num_rows(i)));
    }
}

std::vector<Choice> Group::choose(int64_t num_tokens) const {
    std::vector<Choice> choices;
    for (const auto& weight : weights_)
        choices.push_back(weight->choose(num_tokens, std::nullopt, linear::Path::automatic));
    return choices;
}

void Group::multiply(const RowSource& row, int64_t num_tokens, std::span<const Choice> choices,
                     std::span<float* const> y, const Rows& residual, std::span<Isa> ran) const {
    std::vector<Term> terms;
    for (size_t i = 0; i < size(); i++) terms.push_back(term(i, choices[i], y[i], residual));
    linear::multiply(terms, num_tokens, row_size(), row, ran);
}

Term Group::term(size_t i, const Choice& choice, float* y, const Rows& residual) const {
    const float* bias = biases_[i].empty() ? nullptr : biases_[i].data();
    return {weights_[i].get(), choice, y, num_rows(i), bias, residual.data, residual.stride};
}

bool Group::gates(std::span<const Choice> choices, const InputFormat& format) const {
    return biases_[0].empty() && biases_[1].empty() && choices[0] == choices[1] &&
           weights_[0]->gates(*weights_[1], choices[0], format);
}

void Group::multiply_gated(const RowSource& row, int64_t num_tokens, std::span<const Choice> choices,
                           const InputFormat& format, std::byte* tokens) const {
    Term gate = term(0, choices[0], nullptr, {});
    gate.gated = {weights_[1].get(), &format, tokens};
    linear::multiply({&gate, 1}, num_tokens, row_size(), row);
}

void Group::multiply_prepared(std::byte* tokens, int64_t num_tokens, const Choice& choice, float* y,
                              const Rows& residual) const {
    const Term product = term(0, choice, y, residual);
    linear::multiply_prepared({&product, 1}, num_tokens, tokens);
}

RowSource source_of(const Rows& x, const std::optional<Norm>& norm, const RowSteps& steps) {
    if (!norm) return [x](int64_t token, float*) { return x[token]; };
    return [x, norm = *norm, rms_norm = steps.rms_norm](int64_t token, float* scratch) -> const float* {
        rms_norm(x[token], norm.weight, norm.eps, x.size, scratch);
        return scratch;
    };
}

bool Group::shares() const {
    return std::any_of(weights_.begin(), weights_.end(), [](const auto& weight) { return weight->input().shares(); });
}

void feed_forward(const Group& gate_up, const Group& down, const Rows& x, const std::optional<Norm>& norm,
                  const Rows& residual, float* out, const FeedForwardChoices& choices) {
    const int64_t inner = down.row_size(), width = down.num_rows(0);
    // If all tokens of a call share a scale, a round is not a call.
    const int64_t round_tokens = gate_up.shares() || down.shares() ? x.count : std::min(net_tokens, x.count);
    thread_local Scratch scratch;
    const auto half = static_cast<size_t>(round_tokens * inner);
    const InputFormat& format = down.input(choices.down[0]);
    const bool is_gated = gate_up.gates(choices.gate_up, format);
    std::byte* const between = scratch.get(is_gated ? format.bytes(round_tokens) : 2 * half * sizeof(float));
    float* const both[] = {reinterpret_cast<float*>(between), reinterpret_cast<float*>(between) + half};
    for (int64_t first = 0; first < x.count; first += round_tokens) {
        const int64_t count = std::min(round_tokens, x.count - first);
        const Rows some{x[first], count, x.size, x.stride};
        const Rows added = residual.data ? Rows{residual[first], count, width, residual.stride} : Rows{};
        float* const y[] = {out + first * width};
        if (is_gated) {
            gate_up.multiply_gated(source_of(some, norm, choices.steps), count, choices.gate_up, format, between);
            down.multiply_prepared(between, count, choices.down[0], y[0], added);
            continue;
        }
        gate_up.multiply(source_of(some, norm, choices.steps), count, choices.gate_up, both, {});
        const auto gated = [&](int64_t token, float* row) -> const float* {
            choices.steps.silu_mul(both[0] + token * inner, both[1] + token * inner, inner, row);
            return row;
        };
        down.multiply(gated, count, choices.down, y, added);
    }
    scratch.trim();
}

}  // namespace qk::fused
