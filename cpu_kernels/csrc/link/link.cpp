#include "link/link.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "spin.h"

namespace qk::link {
namespace {

using Clock = std::chrono::steady_clock;

// A look costs two loads and a pause, 30 ns; the exchange of a decode step waits for tens of microseconds.
constexpr int looks_before_yield = 64;
// From here on the other rank computes something long, such as another stage. A sleep of 50 us makes that 1 % later.
constexpr std::chrono::milliseconds stay_awake{5};
constexpr std::chrono::microseconds nap{50};
// The receiver copies one piece while the sender writes the next.
constexpr uint64_t piece = 32 << 10;

}  // namespace

Channel& Link::channel(int64_t sender, int64_t receiver) const {
    const auto stride = static_cast<int64_t>(sizeof(Channel)) + capacity_;
    return *reinterpret_cast<Channel*>(memory_ + (sender * num_ranks_ + receiver) * stride);
}

bool Link::move_some(Transfer& transfer) const {
    const bool is_sent = transfer.is_sent;
    Channel& way = is_sent ? channel(rank_, transfer.rank) : channel(transfer.rank, rank_);
    std::atomic<uint64_t>& mine = is_sent ? way.written : way.read;
    const std::atomic<uint64_t>& theirs = is_sent ? way.read : way.written;
    const auto capacity = static_cast<uint64_t>(capacity_);
    const uint64_t at = mine.load(std::memory_order_relaxed), other = theirs.load(std::memory_order_acquire);
    const uint64_t room = is_sent ? capacity - (at - other) : other - at;
    const uint64_t bytes = std::min({room, transfer.bytes - transfer.done, piece});
    if (bytes == 0) return false;
    std::byte* const ring = reinterpret_cast<std::byte*>(&way) + sizeof(Channel);
    std::byte* const data = transfer.data + transfer.done;
    const uint64_t start = at % capacity, before_end = std::min(bytes, capacity - start);
    if (is_sent) {
        std::memcpy(ring + start, data, before_end);
        std::memcpy(ring, data + before_end, bytes - before_end);
    } else {
        std::memcpy(data, ring + start, before_end);
        std::memcpy(data + before_end, ring, bytes - before_end);
    }
    transfer.done += bytes;
    mine.store(at + bytes, std::memory_order_release);
    return true;
}

int64_t Link::move(std::vector<Transfer>& transfers, double seconds) const {
    const auto start = Clock::now();
    const auto until = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    const auto awake_until = start + stay_awake;
    for (int looks = 0;; looks++) {
        const Transfer* open = nullptr;
        bool has_moved = false;
        for (Transfer& transfer : transfers) {
            if (transfer.done == transfer.bytes) continue;
            has_moved |= move_some(transfer);
            if (transfer.done < transfer.bytes) open = &transfer;
        }
        if (open == nullptr) return -1;
        if (has_moved) {
            looks = 0;
            continue;
        }
        pause();
        if (looks % looks_before_yield) continue;
        const auto now = Clock::now();
        if (now >= until) return open->rank;
        if (now < awake_until)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(nap);
    }
}

void Link::add(const std::vector<const float*>& parts, float* x, int64_t size) {
    constexpr int64_t block = 1024;  // 4 KiB, which stays in the first-level cache
    float total[block];
    for (int64_t begin = 0; begin < size; begin += block) {
        const int64_t count = std::min(block, size - begin);
        const auto from = [&](size_t i) { return (parts[i] ? parts[i] : x) + begin; };
        std::copy_n(from(0), count, total);
        for (size_t i = 1; i < parts.size(); i++) {
            const float* const part = from(i);
            for (int64_t j = 0; j < count; j++) total[j] += part[j];
        }
        std::copy_n(total, count, x + begin);
    }
}

}  // namespace qk::link
