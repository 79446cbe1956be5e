// Order among tasks that run at the same time: each stretch of columns is added to by one piece after the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace qk::moe {

class Turns {
public:
    explicit Turns(int64_t num_stretches) : next_(std::make_unique<Next[]>(num_stretches)) {}

    // Returns when every piece before this one has passed the stretch on. Tasks are taken in the order of the pieces,
    // so the others are far ahead as a rule, and never wait for this one.
    void wait_for(int64_t stretch, int64_t piece) {
        auto& next = next_[stretch].piece;
        for (int64_t now; (now = next.load(std::memory_order_acquire)) != piece;)
            next.wait(now, std::memory_order_acquire);
    }

    void pass_on(int64_t stretch) {
        next_[stretch].piece.fetch_add(1, std::memory_order_release);
        next_[stretch].piece.notify_all();
    }

private:
    struct alignas(64) Next {  // a cache line each
        std::atomic<int64_t> piece{0};
    };
    std::unique_ptr<Next[]> next_;
};

}  // namespace qk::moe
