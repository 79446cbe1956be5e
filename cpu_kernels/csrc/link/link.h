// Channels between the processes of one host, in memory that they share: one per sender and receiver.
//
//   memory    [num_ranks, num_ranks, channel]: sender, receiver; zeros at the start
//   channel   | written: uint64 | 56 B | read: uint64 | 56 B | capacity bytes, a ring |
//
// The sender alone changes `written`, the receiver alone `read`; both count bytes since the start. So neither needs a
// lock, and a message may be longer than the ring: it passes in pieces.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace qk::link {

struct Channel {
    alignas(64) std::atomic<uint64_t> written;
    alignas(64) std::atomic<uint64_t> read;
};
static_assert(sizeof(Channel) == 128 && std::atomic<uint64_t>::is_always_lock_free);

struct Transfer {
    int64_t rank;  // of the other process
    bool is_sent;
    std::byte* data;
    uint64_t bytes;
    uint64_t done = 0;
};

class Link {
public:
    // memory: num_ranks * num_ranks * (sizeof(Channel) + capacity) bytes, aligned to 64
    Link(std::byte* memory, int64_t num_ranks, int64_t capacity, int64_t rank)
        : memory_(memory), num_ranks_(num_ranks), capacity_(capacity), rank_(rank) {}

    // Moves all transfers on until each is done, for at most this time. Returns the rank of one that is not done, or -1.
    int64_t move(std::vector<Transfer>& transfers, double seconds) const;

    // x becomes the sum of parts[0], parts[1] and so on, in this order; null: x itself.
    static void add(const std::vector<const float*>& parts, float* x, int64_t size);

private:
    bool move_some(Transfer& transfer) const;
    Channel& channel(int64_t sender, int64_t receiver) const;

    std::byte* memory_;
    int64_t num_ranks_, capacity_, rank_;
};

}  // namespace qk::link
