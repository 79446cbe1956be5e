#include "tiers/slot_reads.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#ifdef __linux__
#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace qk::tiers {
namespace {

constexpr size_t alignment = 4096;  // of direct I/O: a page of memory, and at least the logical block of today's disks
constexpr int64_t most_at_once = 64;  // reads in a call; more gain nothing, a virtual disk's own queue is shorter

[[noreturn]] void fail(int number, const char* what) { throw std::system_error(number, std::generic_category(), what); }

}  // namespace

#ifdef __linux__

SlotReads::SlotReads(int descriptor, size_t stride, int64_t num_rows)
    : descriptor_(descriptor),
      stride_(stride),
      memory_(static_cast<size_t>(num_rows) * stride + alignment),
      errors_(static_cast<size_t>(num_rows), 0),
      counts_(static_cast<size_t>(num_rows), 0) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = reinterpret_cast<std::byte*>((address + alignment - 1) / alignment * alignment);
    if (syscall(SYS_io_setup, 2 * most_at_once, &context_) != 0) fail(errno, "io_setup");
}

SlotReads::~SlotReads() {
    syscall(SYS_io_destroy, context_);  // waits until nothing writes to the memory
}

void SlotReads::begin(std::span<const SlotRun> runs) {
    iocb requests[most_at_once];
    iocb* pointers[most_at_once];
    for (size_t first = 0; first < runs.size(); first += most_at_once) {
        const auto some = runs.subspan(first, std::min<size_t>(most_at_once, runs.size() - first));
        for (size_t i = 0; i < some.size(); i++) {
            for (int64_t k = 0; k < some[i].count; k++) wait(some[i].row + k);
            requests[i] = {};
            requests[i].aio_data = static_cast<uint64_t>(some[i].row);
            requests[i].aio_lio_opcode = IOCB_CMD_PREAD;
            requests[i].aio_fildes = static_cast<uint32_t>(descriptor_);
            requests[i].aio_buf = reinterpret_cast<uintptr_t>(row(some[i].row));
            requests[i].aio_nbytes = static_cast<uint64_t>(some[i].count) * stride_;
            requests[i].aio_offset = some[i].slot * static_cast<int64_t>(stride_);
            pointers[i] = &requests[i];
        }
        for (size_t done = 0; done < some.size();) {
            const long taken = syscall(SYS_io_submit, context_, some.size() - done, pointers + done);
            if (taken < 0 && errno != EINTR && errno != EAGAIN) fail(errno, "io_submit");
            for (size_t i = done; taken > 0 && i < done + static_cast<size_t>(taken); i++) {
                const auto from = static_cast<size_t>(some[i].row);
                counts_[from] = some[i].count;
                std::fill_n(errors_.begin() + some[i].row, some[i].count, coming);
                num_in_flight_++;
            }
            done += taken > 0 ? static_cast<size_t>(taken) : 0;
            if (taken < 0 && errno == EAGAIN && num_in_flight_ > 0) collect(1);  // its queue is full
        }
    }
}

int SlotReads::wait(int64_t row) {
    while (is_coming(row)) collect(1);
    return errors_[static_cast<size_t>(row)];
}

void SlotReads::collect(int64_t least) {
    io_event events[2 * most_at_once];
    const long count = syscall(SYS_io_getevents, context_, least, 2 * most_at_once, events, nullptr);
    if (count < 0 && errno != EINTR) fail(errno, "io_getevents");
    for (long i = 0; i < count; i++) {
        const auto first = static_cast<int64_t>(events[i].data), result = static_cast<int64_t>(events[i].res);
        for (int64_t k = 0; k < counts_[static_cast<size_t>(first)]; k++) {
            const bool is_there = result >= (k + 1) * static_cast<int64_t>(stride_);
            errors_[static_cast<size_t>(first + k)] = is_there ? 0 : result < 0 ? static_cast<int>(-result) : EIO;
        }
        num_in_flight_--;
    }
}

#else

SlotReads::SlotReads(int descriptor, size_t stride, int64_t) : descriptor_(descriptor), stride_(stride) {
    fail(ENOSYS, "io_setup");
}
SlotReads::~SlotReads() = default;
void SlotReads::begin(std::span<const SlotRun>) {}
int SlotReads::wait(int64_t) { return ENOSYS; }
void SlotReads::collect(int64_t) {}

#endif

}  // namespace qk::tiers
