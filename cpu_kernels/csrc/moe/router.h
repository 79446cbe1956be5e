// Which experts a token gets, from its logits: defined by route_ref in cpu_kernels/moe.py.
#pragma once

#include <cstdint>
#include <vector>

namespace qk::moe {

enum class Scoring : uint8_t { softmax, sigmoid };

struct Routing {
    int64_t num_experts;
    int64_t num_chosen;
    Scoring scoring;
    int64_t num_groups;        // of equal size, in the order of the experts
    int64_t groups_per_token;  // number of groups in which a token chooses
    int64_t best_of_group;     // number of a group's highest scores that sum to its own
    bool is_normed;            // whether the chosen weights sum to 1
    float factor;              // of the weights
    std::vector<float> choice_bias;  // [E], added to the scores to choose alone; or empty
};

// Throws std::invalid_argument for numbers that do not go together.
void require_routing(const Routing& routing);

// logits [E] -> experts [k], the highest score first and of equal ones the first; weights [k]: those of the experts
void choose(const Routing& routing, const float* logits, int64_t* experts, float* weights);

}  // namespace qk::moe
