// Memory for packed weights: aligned for the widest load, on huge pages where there are some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace qk {

class Buffer {
public:
    Buffer() = default;

    explicit Buffer(size_t size) : size_(size) {
        // A weight is read once per token from end to end: with 4 KiB pages that is a TLB miss every 64 cache
        // lines. Only whole huge pages are asked for, so the tail does not round up.
        const size_t alignment = size >= huge_page ? huge_page : cache_line;
        void* data = nullptr;
        if (posix_memalign(&data, alignment, size ? size : 1)) throw std::bad_alloc();
        data_.reset(static_cast<uint8_t*>(data));
#if defined(__linux__)
        if (size >= huge_page) madvise(data, size / huge_page * huge_page, MADV_HUGEPAGE);
#endif
    }

    uint8_t* data() { return data_.get(); }
    const uint8_t* data() const { return data_.get(); }
    size_t size() const { return size_; }

private:
    static constexpr size_t cache_line = 64;
    static constexpr size_t huge_page = size_t{2} << 20;

    struct Free {
        void operator()(uint8_t* data) const { std::free(data); }
    };

    size_t size_ = 0;
    std::unique_ptr<uint8_t, Free> data_;
};

}  // namespace qk
