// The GGUF formats that have encoders and decoders, and how one is found by its name.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "block_formats/layouts.h"
#include "dispatch.h"

namespace qk {

// Declares the kernel of every format, named after it, for each instruction set. Kernels take a Job of the op.
#define QK_DECLARE_CODEC(name) Isa name(const Job& job, int64_t begin, int64_t end);
#define QK_DECLARE_CODECS              \
    namespace scalar {                 \
    QK_CODEC_FORMATS(QK_DECLARE_CODEC) \
    }                                  \
    namespace avx2 {                   \
    QK_CODEC_FORMATS(QK_DECLARE_CODEC) \
    }                                  \
    namespace avx512 {                 \
    QK_CODEC_FORMATS(QK_DECLARE_CODEC) \
    }

// NAME_table, the table of a format's kernels, best first.
#define QK_CODEC_TABLE(name) static constexpr Impl<Kernel> name##_table[] = {QK_IMPLS(QK_KERNEL, name)};

// All codecs of an op, as rows of BlockCodec.
#define QK_CODEC_ROW(op, name) {#name, op #name, layout::name::block_size, layout::name::block_bytes, name##_table},

// The encoder or the decoder of a format.
template <class Kernel>
struct BlockCodec {
    const char* format;
    const char* op;  // its name in the op table
    int block_size;
    int block_bytes;
    std::span<const Impl<Kernel>> table;
};

// The codec of this format. Throws std::invalid_argument that lists the formats.
template <class Kernel>
const BlockCodec<Kernel>& find_codec(std::span<const BlockCodec<Kernel>> codecs, std::string_view format) {
    std::string known;
    for (const auto& codec : codecs) {
        if (format == codec.format) return codec;
        known += (known.empty() ? "" : ", ") + std::string(codec.format);
    }
    throw std::invalid_argument("format: got " + std::string(format) + ", expected one of " + known);
}

// Weights a task: 64 KiB of float32, some microseconds, which stay in the L2 between an encoder's check and its kernel;
// some hundred tasks for a weight of usual size. A multiple of every block size times the widest vector's 16 lanes.
inline constexpr int64_t weights_per_task = 1 << 14;

}  // namespace qk
