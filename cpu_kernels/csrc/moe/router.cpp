#include "moe/router.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace qk::moe {
namespace {

constexpr float least_sum = 1e-20f;  // of sigmoids that all vanish, as DeepSeek-V3 published it

// NaN is above all, as torch.topk has it, so that it is seen.
bool above(float a, float b) { return a > b || (std::isnan(a) && !std::isnan(b)); }

// Places of the `count` highest of values [size], the highest first, of equal ones the first.
void highest(const float* values, int64_t size, int64_t count, int64_t* places) {
    thread_local std::vector<bool> taken;
    taken.assign(static_cast<size_t>(size), false);
    for (int64_t j = 0; j < count; j++) {
        int64_t best = -1;
        for (int64_t i = 0; i < size; i++)
            if (!taken[i] && (best < 0 || above(values[i], values[best]))) best = i;
        taken[best] = true;
        places[j] = best;
    }
}

// In float64, which no instruction set rounds otherwise.
void score(const Routing& routing, const float* logits, float* scores) {
    const int64_t size = routing.num_experts;
    if (routing.scoring == Scoring::sigmoid) {
        for (int64_t e = 0; e < size; e++) scores[e] = static_cast<float>(1 / (1 + std::exp(-double{logits[e]})));
        return;
    }
    const double largest = *std::max_element(logits, logits + size);
    double sum = 0;
    for (int64_t e = 0; e < size; e++) sum += std::exp(logits[e] - largest);
    for (int64_t e = 0; e < size; e++) scores[e] = static_cast<float>(std::exp(logits[e] - largest) / sum);
}

// preferred of all experts outside the best groups: -infinity
void keep_best_groups(const Routing& routing, float* preferred) {
    const int64_t size = routing.num_experts / routing.num_groups;
    thread_local std::vector<float> of_group;
    thread_local std::vector<int64_t> places, groups;
    of_group.assign(static_cast<size_t>(routing.num_groups), 0.0f);
    places.resize(static_cast<size_t>(routing.best_of_group));
    groups.resize(static_cast<size_t>(routing.groups_per_token));
    for (int64_t g = 0; g < routing.num_groups; g++) {
        highest(preferred + g * size, size, routing.best_of_group, places.data());
        for (const int64_t place : places) of_group[g] += preferred[g * size + place];
    }
    highest(of_group.data(), routing.num_groups, routing.groups_per_token, groups.data());
    for (int64_t g = 0; g < routing.num_groups; g++)
        if (std::find(groups.begin(), groups.end(), g) == groups.end())
            std::fill_n(preferred + g * size, size, -INFINITY);
}

void require(bool holds, const std::string& message) {
    if (!holds) throw std::invalid_argument("routing: " + message);
}

}  // namespace

void require_routing(const Routing& routing) {
    const int64_t experts = routing.num_experts, groups = routing.num_groups;
    require(groups >= 1 && experts % groups == 0 && routing.groups_per_token >= 1 && routing.groups_per_token <= groups,
            "got " + std::to_string(groups) + " groups of " + std::to_string(experts) + " experts and " +
                std::to_string(routing.groups_per_token) + " a token, expected groups of equal size");
    require(
        routing.best_of_group >= 1 && routing.best_of_group <= experts / groups,
        "got the best " + std::to_string(routing.best_of_group) + " of groups of " + std::to_string(experts / groups));
    const int64_t in_reach = routing.groups_per_token * (experts / groups);
    require(routing.num_chosen >= 1 && routing.num_chosen <= in_reach, "got " + std::to_string(routing.num_chosen) +
                                                                           " experts a token, expected 1 to " +
                                                                           std::to_string(in_reach) + " in its groups");
}

void choose(const Routing& routing, const float* logits, int64_t* experts, float* weights) {
    thread_local std::vector<float> scores, preferred;
    scores.resize(static_cast<size_t>(routing.num_experts));
    score(routing, logits, scores.data());
    preferred = scores;
    for (size_t e = 0; e < routing.choice_bias.size(); e++) preferred[e] += routing.choice_bias[e];
    if (routing.groups_per_token < routing.num_groups) keep_best_groups(routing, preferred.data());
    highest(preferred.data(), routing.num_experts, routing.num_chosen, experts);
    float sum = 0;
    for (int64_t j = 0; j < routing.num_chosen; j++) sum += weights[j] = scores[experts[j]];
    for (int64_t j = 0; j < routing.num_chosen; j++) {
        if (routing.is_normed) weights[j] /= std::max(sum, least_sum);  // NaN stays
        weights[j] *= routing.factor;
    }
}

}  // namespace qk::moe
