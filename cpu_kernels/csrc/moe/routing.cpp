#include "moe/routing.h"

#include <algorithm>
#include <numeric>

namespace qk::moe {

Places sort_by_expert(const Choices& choices, int64_t num_experts, int64_t num_shared) {
    const int64_t num_routed = choices.num_tokens * choices.num_chosen;
    Places places;
    places.begin.assign(num_experts + 1, 0);
    for (int64_t i = 0; i < num_routed; i++) places.begin[choices.experts[i] + 1]++;
    for (int64_t e = num_experts - num_shared; e < num_experts; e++) places.begin[e + 1] = choices.num_tokens;
    std::partial_sum(places.begin.begin(), places.begin.end(), places.begin.begin());
    places.token.resize(places.begin.back());
    places.weight.resize(places.begin.back());

    std::vector<int64_t> next(places.begin.begin(), places.begin.end() - 1);
    for (int64_t i = 0; i < num_routed; i++) {
        const int64_t place = next[choices.experts[i]]++;
        places.token[place] = i / choices.num_chosen;
        places.weight[place] = choices.weights[i];
    }
    for (int64_t e = num_experts - num_shared; e < num_experts; e++) {
        std::iota(places.token.begin() + places.begin[e], places.token.begin() + places.begin[e + 1], 0);
        std::fill(places.weight.begin() + places.begin[e], places.weight.begin() + places.begin[e + 1], 1.0f);
    }
    return places;
}

}  // namespace qk::moe
