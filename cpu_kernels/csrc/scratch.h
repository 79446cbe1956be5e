// Memory that a thread keeps from call to call: a decode step allocates nothing.
#pragma once

#include <cstddef>

#include "buffer.h"

namespace qk {

class Scratch {
public:
    // Bytes that are kept at most. Gate and up of 512 tokens of a net 14336 wide are 56 MiB.
    static constexpr size_t most_kept = size_t{64} << 20;

    // At least `size` bytes at a multiple of 64; their contents are lost.
    std::byte* get(size_t size) {
        if (buffer_.size() < size) {
            buffer_ = Buffer();
            buffer_ = Buffer(size);
        }
        return reinterpret_cast<std::byte*>(buffer_.data());
    }
    float* floats(size_t count) { return reinterpret_cast<float*>(get(count * sizeof(float))); }

    // Frees memory that only a long prompt needs.
    void trim() {
        if (buffer_.size() > most_kept) buffer_ = Buffer();
    }

private:
    Buffer buffer_;
};

}  // namespace qk
