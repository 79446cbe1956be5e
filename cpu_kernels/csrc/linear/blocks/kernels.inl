// Every format as block.h declares it. Included inside the namespace of an instruction set, after lanes.

namespace {
#include "linear/accumulate.inl"
#ifdef QK_LINEAR_PAIRS
#include "linear/direct/pairs.inl"
#else
#include "linear/direct/dots.inl"
#endif
#include "linear/formats/planes.inl"
#include "linear/formats/scales.inl"
#include "linear/formats/lattice.inl"
#include "linear/formats/groups.inl"
#include "linear/direct.inl"
#include "linear/unpack.inl"
}  // namespace

#define QK_PRODUCTS(name, Format)                                                                         \
    Isa direct_##name(const uint8_t* stretch, const BlockShape& shape, int num_steps, const std::byte* x, \
                      size_t token_bytes, int num_tokens, float* y) {                                     \
        return direct<Format>(stretch, shape, num_steps, x, token_bytes, num_tokens, y);                  \
    }                                                                                                     \
    void unpack_##name(const uint8_t* stretch, const BlockShape& shape, const Stretch& out) {             \
        unpack<Format>(stretch, shape, out);                                                              \
    }

#define QK_LINEAR
#include "block_formats/all.inl"
#undef QK_LINEAR
QK_GROUP_CODES(QK_PRODUCTS)
