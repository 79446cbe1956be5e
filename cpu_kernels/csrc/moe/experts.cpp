#include "moe/experts.h"

#include <stdexcept>
#include <utility>

namespace qk::moe {
namespace {

using linear::Weight;

std::string shape_of(const Weight& weight) {
    return '[' + std::to_string(weight.num_rows()) + ", " + std::to_string(weight.row_size()) + ']';
}

std::optional<std::string> obstacle_in(const Expert& expert, const Expert& first, const std::string& name) {
    const int64_t hidden = first.gate->row_size();
    if (expert.gate->row_size() != hidden || expert.up->row_size() != hidden || expert.down->num_rows() != hidden ||
        expert.up->num_rows() != expert.gate->num_rows() || expert.down->row_size() != expert.gate->num_rows())
        return name + ": got gate " + shape_of(*expert.gate) + ", up " + shape_of(*expert.up) + ", down " +
               shape_of(*expert.down) + ", expected [I, K], [I, K], [K, I] with K = " + std::to_string(hidden);
    for (const Weight* weight : {expert.gate.get(), expert.up.get()})
        if (!weight->input().equals(first.gate->input()))
            return name + ": gate and up of all experts must round their input alike; " +
                   std::string(weight->format()) + " does it unlike " + std::string(first.gate->format()) +
                   " of expert 0";
    for (const Weight* weight : {expert.gate.get(), expert.down.get()})
        if (weight->input().shares())
            return name + ": " + std::string(weight->format()) +
                   " rounds activations with one scale for all tokens of a call, expected a scale for each token";
    return std::nullopt;
}

}  // namespace

std::optional<std::string> Experts::obstacle(const std::vector<Expert>& experts, int64_t num_shared) {
    const auto num_experts = static_cast<int64_t>(experts.size());
    if (num_experts == 0 || num_shared < 0 || num_shared > num_experts)
        return "experts: got " + std::to_string(num_experts) + ", " + std::to_string(num_shared) +
               " of them shared, expected one or more, and no more shared than there are";
    for (size_t e = 0; e < experts.size(); e++)
        if (auto found = obstacle_in(experts[e], experts[0], "expert " + std::to_string(e))) return found;
    return std::nullopt;
}

Experts::Experts(std::vector<Expert> experts, int64_t num_shared)
    : experts_(std::move(experts)), num_shared_(num_shared) {
    if (const auto found = obstacle(experts_, num_shared)) throw std::invalid_argument(*found);
}

size_t Experts::nbytes() const {
    size_t bytes = 0;
    for (const auto& expert : experts_) bytes += expert.gate->nbytes() + expert.up->nbytes() + expert.down->nbytes();
    return bytes;
}

}  // namespace qk::moe
