// Blocks of GGUF formats to float32, bit for bit as the NumPy codecs in quant/formats do it.
//
// Each lane of a vector takes a weight of its own, so that floats are written as they come. One algorithm over the
// types of simd/*.inl is compiled once per instruction set.
#pragma once

#include <cstdint>
#include <span>

#include "block_codecs.h"

namespace qk::decode {

struct Job {
    const uint8_t* blocks;  // [B, block_bytes]
    float* out;             // [B, block_size]
};

// Blocks [begin, end) of the job. Returns its own name: the proof that it ran.
using Kernel = Isa (*)(const Job& job, int64_t begin, int64_t end);

using Decoder = BlockCodec<Kernel>;

std::span<const Decoder> decoders();

// All blocks of the job on the thread pool.
Isa run(const Decoder& decoder, const Job& job, int64_t num_blocks, const Impl<Kernel>& impl);

QK_DECLARE_CODECS

}  // namespace qk::decode
