// Every format as block.h declares it. Included inside the namespace of an instruction set.

#define QK_DEFINE(name, Format)                                                                                       \
    Isa direct_##name(const uint8_t* panel, const PanelShape& shape, const std::byte* x, size_t token_bytes,          \
                      int num_tokens, float* y) {                                                                     \
        return direct<Format>(panel, shape, x, token_bytes, num_tokens, y);                                           \
    }                                                                                                                 \
    void unpack_##name(const uint8_t* panel, const PanelShape& shape, int64_t first, const Stretch& out) {            \
        unpack<Format>(panel, shape, first, out);                                                                     \
    }
QK_DEFINE(q4_0, Q4_0)
QK_DEFINE(q8_0, Q8_0)
QK_DEFINE(q4_k, Q4_K)
#undef QK_DEFINE
