// Every format as block.h declares it. Included inside the namespace of an instruction set.

#define QK_DEFINE(name, Format)                                                                                       \
    Isa direct_##name(const uint8_t* stretch, const BlockShape& shape, int num_steps, const std::byte* x,             \
                      size_t token_bytes, int num_tokens, float* y) {                                                 \
        return direct<Format>(stretch, shape, num_steps, x, token_bytes, num_tokens, y);                              \
    }                                                                                                                 \
    void unpack_##name(const uint8_t* stretch, const BlockShape& shape, const Stretch& out) {                         \
        unpack<Format>(stretch, shape, out);                                                                          \
    }
QK_DEFINE(q4_0, Q4_0)
QK_DEFINE(q4_1, Q4_1)
QK_DEFINE(q5_0, Q5_0)
QK_DEFINE(q5_1, Q5_1)
QK_DEFINE(q8_0, Q8_0)
QK_DEFINE(q2_k, Q2_K)
QK_DEFINE(q3_k, Q3_K)
QK_DEFINE(q4_k, Q4_K)
QK_DEFINE(q5_k, Q5_K)
QK_DEFINE(q6_k, Q6_K)
QK_DEFINE(iq4_nl, IQ4_NL)
QK_DEFINE(iq4_xs, IQ4_XS)
QK_DEFINE(w2, Group<2>)
QK_DEFINE(w3, Group<3>)
QK_DEFINE(w4, Group<4>)
QK_DEFINE(w8, Group<8>)
QK_DEFINE(w2_asym, AsymmetricGroup<2>)
QK_DEFINE(w3_asym, AsymmetricGroup<3>)
QK_DEFINE(w4_asym, AsymmetricGroup<4>)
QK_DEFINE(w8_asym, AsymmetricGroup<8>)
#undef QK_DEFINE
