// Memory for packed weights, keys and values: aligned for the widest load, on huge pages if there are some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace qk {

class Buffer {
public:
    Buffer() = default;
    explicit Buffer(size_t size);

    // For buffers that live as long as a model or a cache: may share huge pages with others. Its memory is free again
    // when it goes, its addresses when all of them have gone.
    static Buffer long_lived(size_t size);

    // Memory of someone else, who keeps it as long as `data` is held.
    static Buffer over(size_t size, std::shared_ptr<uint8_t> data) { return {size, std::move(data)}; }

    uint8_t* data() { return data_.get(); }
    const uint8_t* data() const { return data_.get(); }
    size_t size() const { return size_; }
    std::span<const uint8_t> bytes() const { return {data_.get(), size_}; }

private:
    Buffer(size_t size, std::shared_ptr<uint8_t> data) : size_(size), data_(std::move(data)) {}

    size_t size_ = 0;
    std::shared_ptr<uint8_t> data_;
};

}  // namespace qk
