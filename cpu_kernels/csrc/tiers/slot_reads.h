// Slots of a file that are on their way to memory while the caller computes: several reads in flight, by no thread.
//
// Linux takes reads and says which have ended by two system calls (io_submit, io_getevents). A file that is open for
// direct I/O only: other reads are not in flight together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qk::tiers {

// One read of neighbouring slots, to rows that follow each other.
struct SlotRun { int64_t slot, row, count; };

class SlotReads {
public:
    // stride: bytes of a slot in the file. Throws std::system_error if the system does not take several reads.
    SlotReads(int descriptor, size_t stride, int64_t num_rows);
    ~SlotReads();
    SlotReads(const SlotReads&) = delete;
    SlotReads& operator=(const SlotReads&) = delete;

    // Begin to read these, after earlier reads of their rows. Throws std::system_error; some may have begun then.
    void begin(std::span<const SlotRun> runs);

    // Until the row is there: 0, or the number of an error; EIO beyond the file's end.
    int wait(int64_t row);

    bool is_coming(int64_t row) const { return errors_[static_cast<size_t>(row)] == coming; }
    const std::byte* row(int64_t number) const { return data_ + static_cast<size_t>(number) * stride_; }

private:
    static constexpr int coming = -1;

    void collect(int64_t least);

    int descriptor_;
    size_t stride_;
    std::vector<uint8_t> memory_;
    std::byte* data_;
    std::vector<int> errors_;      // of each row, or `coming`
    std::vector<int64_t> counts_;  // of the run that began at a row
    unsigned long context_ = 0;
    int64_t num_in_flight_ = 0;
};

}  // namespace qk::tiers
