// Memory that a thread keeps from call to call: a decode step allocates nothing.
#pragma once

#include <cstddef>

#include "buffer.h"

namespace qk::moe {

class Scratch {
public:
    // At least `size` bytes at a multiple of 64; what was in them is lost.
    std::byte* get(size_t size) {
        if (buffer_.size() < size) {
            buffer_ = Buffer();
            buffer_ = Buffer(size);
        }
        return reinterpret_cast<std::byte*>(buffer_.data());
    }

private:
    Buffer buffer_;
};

}  // namespace qk::moe
