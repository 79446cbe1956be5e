// Whether a product of one or two tokens asks for its weights ahead of their use, see direct.inl.
#pragma once

#include <cstdint>

namespace qk::linear {

// Cache to which they are brought. Without requests the processor's own prefetching is faster on other machines.
enum class ReadAhead : uint8_t { none, to_l1, to_l2 };

// to_l2 on Intel's processors with AMX, to_l1 on AMD's family 26 (Zen 5) and later. Found at the first call, and constant
// from then on.
ReadAhead read_ahead();

}  // namespace qk::linear
