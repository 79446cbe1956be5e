// Blocks of GGUF formats to float32, bit for bit as the NumPy codecs in quant/formats do it.
//
// As in encode/: each lane of a vector takes a block of its own, and one algorithm over the types of lanes_*.inl is
// compiled once an instruction set.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "dispatch.h"

namespace qk::decode {

struct Job {
    const uint8_t* blocks;  // [B, block_bytes]
    float* out;             // [B, block_size]
};

// Blocks [begin, end) of the job. Returns who it is: the proof of what ran.
using Kernel = Isa (*)(const Job& job, int64_t begin, int64_t end);

struct Decoder {
    const char* format;
    const char* op;  // its name in the op table
    int block_size;
    int block_bytes;
    std::span<const Impl<Kernel>> table;
};

std::span<const Decoder> decoders();

// The decoder of this format. Throws std::invalid_argument that lists what there is.
const Decoder& find_decoder(std::string_view format);

// All blocks of the job on the thread pool.
Isa run(const Decoder& decoder, const Job& job, int64_t num_blocks, const Impl<Kernel>& impl);

// name, block_size, block_bytes
#define QK_DECODED_FORMATS(X) \
    X(q4_0, 32, 18)           \
    X(q4_1, 32, 20)           \
    X(q5_0, 32, 22)           \
    X(q5_1, 32, 24)           \
    X(q8_0, 32, 34)           \
    X(q2_k, 256, 84)          \
    X(q3_k, 256, 110)         \
    X(q4_k, 256, 144)         \
    X(q5_k, 256, 176)         \
    X(q6_k, 256, 210)         \
    X(iq4_nl, 32, 18)         \
    X(iq4_xs, 256, 136)

#define QK_DECLARE_FORMAT(name, block_size, block_bytes) Isa name(const Job& job, int64_t begin, int64_t end);
namespace scalar { QK_DECODED_FORMATS(QK_DECLARE_FORMAT) }
namespace avx2 { QK_DECODED_FORMATS(QK_DECLARE_FORMAT) }
namespace avx512 { QK_DECODED_FORMATS(QK_DECLARE_FORMAT) }
#undef QK_DECLARE_FORMAT

}  // namespace qk::decode
