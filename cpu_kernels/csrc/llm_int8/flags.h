#pragma once

#include <atomic>
#include <cstdint>

namespace qk::llm_int8 {

// Few features are outliers, and the same ones in most tokens: a flag that is up is only read.
inline void raise_flag(uint8_t& flag) {
    const std::atomic_ref shared(flag);
    if (!shared.load(std::memory_order_relaxed)) shared.store(1, std::memory_order_relaxed);
}

}  // namespace qk::llm_int8
