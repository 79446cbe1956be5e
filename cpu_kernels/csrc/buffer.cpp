#include "buffer.h"

#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

#if defined(__linux__)
#include <pthread.h>
#include <sys/mman.h>
#endif

namespace qk {
namespace {

constexpr size_t cache_line = 64;
constexpr size_t huge_page = size_t{2} << 20;

// A weight is read once per token from end to end, and so are keys and values: with 4 KiB pages that is a TLB miss
// every 64 cache lines. Small ones, such as the hundreds of experts of a layer or the scales of its keys, have no whole
// huge page each, so they share slabs. The memory of a slab is given by the system as it is first written, whole huge
// pages at a time: its unused end costs nothing.
constexpr size_t slab_size = size_t{64} << 20;
constexpr size_t largest_in_slab = slab_size / 8;  // at most an eighth of a slab is lost at its end
constexpr size_t smallest_in_slab = size_t{64} << 10;  // below, the heap is as good, and frees each by itself

std::shared_ptr<uint8_t> allocate(size_t size) {
    const size_t alignment = size >= huge_page ? huge_page : cache_line;
    void* data = nullptr;
    if (posix_memalign(&data, alignment, size ? size : 1)) throw std::bad_alloc();
#if defined(__linux__)
    // Only whole huge pages are asked for, so the tail does not round up.
    if (size >= huge_page) madvise(data, size / huge_page * huge_page, MADV_HUGEPAGE);
#endif
    return {static_cast<uint8_t*>(data), [](uint8_t* owned) { std::free(owned); }};
}

// The slab that is being filled. It lives as long as a buffer in it.
struct OpenSlab {
    std::mutex mutex;
    std::weak_ptr<uint8_t> slab;
    size_t used = 0;
};

// Gives the memory of whole pages in it back to the system; their addresses stay those of the slab.
void release([[maybe_unused]] uint8_t* data, [[maybe_unused]] size_t size) {
#if defined(__linux__)
    constexpr uintptr_t page = 4096;
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + size) / page * page;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
#endif
}

OpenSlab* open_slab = new OpenSlab;  // never destroyed: a buffer may outlive static destructors

// The child of a fork may have a lock that no one will open.
[[maybe_unused]] void start_over_after_fork() { open_slab = new OpenSlab; }

std::shared_ptr<uint8_t> allocate_in_slab(size_t size) {
#if defined(__linux__)
    [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, start_over_after_fork);
#endif
    const std::lock_guard lock(open_slab->mutex);
    std::shared_ptr<uint8_t> slab = open_slab->slab.lock();
    if (!slab || slab_size - open_slab->used < size) {
        slab = allocate(slab_size);
        open_slab->slab = slab;
        open_slab->used = 0;
    }
    uint8_t* const data = slab.get() + open_slab->used;
    open_slab->used += (size + cache_line - 1) / cache_line * cache_line;
    return {data, [slab = std::move(slab), size](uint8_t* unused) { release(unused, size); }};
}

}  // namespace

Buffer::Buffer(size_t size) : Buffer(size, allocate(size)) {}

Buffer Buffer::long_lived(size_t size) {
    if (size < smallest_in_slab || size > largest_in_slab) return Buffer(size);
    return {size, allocate_in_slab(size)};
}

}  // namespace qk
