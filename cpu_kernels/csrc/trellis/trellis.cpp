#include "trellis/trellis.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "thread_pool.h"

namespace qk::trellis {
namespace {

constexpr Impl<Kernels> impls[] = {QK_IMPLS(QK_KERNEL, step)};
constexpr int64_t any_end = -1;

// The memory of one thread's paths.
class Paths {
public:
    Paths(const Code& code, const float* values, const Kernels& kernels)
        : code_(code),
          values_(values),
          kernels_(kernels),
          cost_(ends()),
          next_(ends()),
          oldest_(static_cast<size_t>(code.num_ends() * tile)) {}

    // The states of the best path over x [256] that begins after and ends in the bits `end`, or in any.
    Isa search(const float* x, int64_t end, uint32_t* states) {
        const int64_t num_ends = code_.num_ends();
        std::fill(cost_.begin(), cost_.end(), end == any_end ? 0.0f : std::numeric_limits<float>::infinity());
        if (end != any_end) cost_[static_cast<size_t>(end)] = 0;
        Isa ran{};
        for (int t = 0; t < tile; t++) {
            ran = kernels_.step(code_, values_, cost_.data(), x[t], next_.data(), oldest_.data() + t * num_ends);
            cost_.swap(next_);
        }
        if (end == any_end) end = std::min_element(cost_.begin(), cost_.begin() + num_ends) - cost_.begin();
        for (int t = tile - 1; t >= 0; t--) {
            const int64_t state = end + oldest_[static_cast<size_t>(t * num_ends + end)] * num_ends;
            states[t] = static_cast<uint32_t>(state);
            end = state >> code_.bits;
        }
        return ran;
    }

private:
    Code code_;
    const float* values_;
    Kernels kernels_;
    std::vector<float> cost_, next_;
    std::vector<uint8_t> oldest_;  // [256, num_ends]

    size_t ends() const { return static_cast<size_t>(code_.num_ends()) + 16; }  // a step reads 16 beyond the last
};

std::vector<float> all_values(const Code& code) {
    std::vector<float> values(size_t{1} << code.state_bits);
    for (size_t state = 0; state < values.size(); state++)
        values[state] = static_cast<float>(value_of(static_cast<uint32_t>(state)));
    return values;
}

}  // namespace

std::span<const Impl<Kernels>> table() { return impls; }

Isa encode(const Code& code, const float* x, int64_t num_tiles, uint16_t* packed, const Impl<Kernels>& impl) {
    const std::vector<float> values = all_values(code);
    const auto pool = thread_pool();
    std::atomic<Isa> ran{impl.isa};
    const int64_t num_tasks = std::min<int64_t>(num_tiles, 8 * pool->num_threads());
    pool->run(num_tasks, [&](int64_t task) {
        Paths paths(code, values.data(), impl.kernels);
        for (int64_t i = task * num_tiles / num_tasks; i < (task + 1) * num_tiles / num_tasks; i++) {
            const float* own = x + i * tile;
            float turned[tile];
            uint32_t states[tile];
            std::rotate_copy(own, own + tile / 2, own + tile, turned);
            paths.search(turned, any_end, states);
            ran = paths.search(own, states[tile / 2] >> code.bits, states);
            uint16_t* words = packed + i * code.words();
            std::fill_n(words, code.words(), uint16_t{0});
            for (int at = 0; at < tile * code.bits; at++) {
                const uint32_t bit = states[at / code.bits] >> (code.bits - 1 - at % code.bits) & 1;
                words[at / 16] = static_cast<uint16_t>(words[at / 16] | bit << (15 - at % 16));
            }
        }
    });
    return ran;
}

void decode(const Code& code, const uint16_t* packed, int64_t num_tiles, float* values) {
    const uint32_t mask = (1u << code.state_bits) - 1;
    thread_pool()->run(num_tiles, [&](int64_t i) {
        const uint16_t* words = packed + i * code.words();
        for (int t = 0; t < tile; t++) {
            const int end = (t + 1) * code.bits - 1, word = end / 16;  // the last bit of the state
            const uint32_t before = words[word ? word - 1 : code.words() - 1];
            values[i * tile + t] = static_cast<float>(value_of((before << 16 | words[word]) >> (15 - end % 16) & mask));
        }
    });
}

}  // namespace qk::trellis
