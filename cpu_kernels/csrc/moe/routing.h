// Which tokens each expert gets: the choices of a call, sorted by expert.
#pragma once

#include <cstdint>
#include <vector>

namespace qk::moe {

// The router's choice: num_chosen experts for each token, and the weights of their outputs.
struct Choices {
    const int64_t* experts;  // [M, k], each in [0, E)
    const float* weights;    // [M, k]
    int64_t num_tokens;
    int64_t num_chosen;
};

// A place is one token at one expert. Places of an expert follow each other, its tokens ascending, so that addends
// of a token come in ascending order of its experts.
struct Places {
    std::vector<int64_t> begin;  // [E + 1]: the places of expert e are begin[e] to begin[e + 1]
    std::vector<int64_t> token;
    std::vector<float> weight;
};

// The last num_shared of the experts get every token, with weight 1, after those that the choices name.
Places sort_by_expert(const Choices& choices, int64_t num_experts, int64_t num_shared);

}  // namespace qk::moe
