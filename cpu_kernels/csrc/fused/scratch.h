// Memory that a thread keeps from call to call: a decode step allocates nothing.
#pragma once

#include <cstddef>

#include "buffer.h"

namespace qk::fused {

class Scratch {
public:
    // Room for so many floats; what was there is lost.
    float* floats(size_t count) {
        if (buffer_.size() < count * sizeof(float)) {
            buffer_ = Buffer();
            buffer_ = Buffer(count * sizeof(float));
        }
        return reinterpret_cast<float*>(buffer_.data());
    }

    // Gives back what only a long prompt needs.
    void trim() {
        if (buffer_.size() > most_kept) buffer_ = Buffer();
    }

private:
    // Gate and up of 512 tokens of a net 14336 wide are 56 MiB.
    static constexpr size_t most_kept = size_t{64} << 20;

    Buffer buffer_;
};

}  // namespace qk::fused
