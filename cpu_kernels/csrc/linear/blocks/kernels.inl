// The formats' readers and what is done with them, of one instruction set. Included inside its namespace, after lanes.

#include "linear/formats/planes.inl"
#include "linear/formats/scales.inl"
#include "linear/formats/groups.inl"
#include "linear/accumulate.inl"
#include "linear/direct.inl"
#include "linear/unpack.inl"

#define QK_PRODUCTS(name, Format)                                                                         \
    Isa direct_##name(const uint8_t* stretch, const BlockShape& shape, int num_steps, const std::byte* x, \
                      size_t token_bytes, int num_tokens, float* y) {                                     \
        return direct<Format>(stretch, shape, num_steps, x, token_bytes, num_tokens, y);                  \
    }                                                                                                     \
    void unpack_##name(const uint8_t* stretch, const BlockShape& shape, const Stretch& out) {             \
        unpack<Format>(stretch, shape, out);                                                              \
    }
