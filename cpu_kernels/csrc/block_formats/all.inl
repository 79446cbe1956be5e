// Every block format of GGUF's that has kernels: a row here, and below it the file that has all of its C++.
//
// A file has sections. It is included once for each, with the section's macro defined:
//     QK_LAYOUT          layouts.h, once: struct layout::NAME describes a block
//     QK_DECODE          decode/<isa>.cpp: blocks to float32
//     QK_ENCODE          encode/<isa>.cpp: float32 to blocks
//     QK_LINEAR          linear/blocks/<isa>.cpp: panels (linear/block.h) to codes and scales
// NumPy encodes and decodes the formats that are not among QK_CODEC_FORMATS.
#ifndef QK_BLOCK_FORMATS
#define QK_CODEC_FORMATS(X) \
    X(q4_0)                 \
    X(q4_1)                 \
    X(q5_0)                 \
    X(q5_1)                 \
    X(q8_0)                 \
    X(q2_k)                 \
    X(q3_k)                 \
    X(q4_k)                 \
    X(q5_k)                 \
    X(q6_k)                 \
    X(iq4_nl)               \
    X(iq4_xs)               \
    X(mxfp4)
#define QK_BLOCK_FORMATS(X) \
    QK_CODEC_FORMATS(X)     \
    X(iq2_xxs)              \
    X(iq2_xs)               \
    X(iq2_s)                \
    X(iq3_xxs)              \
    X(iq3_s)                \
    X(tq1_0)                \
    X(tq2_0)
#endif

#include "block_formats/q4_0.inl"
#include "block_formats/q4_1.inl"
#include "block_formats/q5_0.inl"
#include "block_formats/q5_1.inl"
#include "block_formats/q8_0.inl"
#include "block_formats/q2_k.inl"
#include "block_formats/q3_k.inl"
#include "block_formats/q4_k.inl"
#include "block_formats/q5_k.inl"
#include "block_formats/q6_k.inl"
#include "block_formats/iq4_nl.inl"
#include "block_formats/iq4_xs.inl"
#include "block_formats/mxfp4.inl"
#include "block_formats/iq2_xxs.inl"
#include "block_formats/iq2_xs.inl"
#include "block_formats/iq2_s.inl"
#include "block_formats/iq3_xxs.inl"
#include "block_formats/iq3_s.inl"
#include "block_formats/tq1_0.inl"
#include "block_formats/tq2_0.inl"
