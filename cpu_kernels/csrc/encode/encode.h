// float32 weights to the blocks of GGUF formats, bit for bit as the NumPy codecs in quant/formats do it.
//
// Each lane of a vector takes a block of its own and runs the scalar algorithm on it: sums are sequential in every
// lane, choices are selects, nothing is fused, so that all instruction sets (and NumPy, with an array in place of
// a vector here) come to the same bits. The algorithms are written over the types of simd/*.inl and
// compiled once per instruction set, by the files that include them inside their target region.
#pragma once

#include <cstdint>
#include <span>

#include "block_codecs.h"

namespace qk::encode {

struct Job {
    const float* blocks;        // [B, block_size], finite
    const float* importance;  // [P, block_size] in (0, 1], block b has row b % P; nullptr: all weights count the same
    int64_t importance_period;  // P
    uint8_t* out;  // [B, block_bytes]
    bool best;  // the long search instead of the fast one
};

// Blocks [begin, end) of the job. Returns its own name: the proof that it ran.
using Kernel = Isa (*)(const Job& job, int64_t begin, int64_t end);

using Encoder = BlockCodec<Kernel>;

std::span<const Encoder> encoders();

// All blocks of the job on the thread pool; the bytes do not depend on the number of threads.
// Throws std::invalid_argument for NaN or infinity in the weights.
Isa run(const Encoder& encoder, const Job& job, int64_t num_blocks, const Impl<Kernel>& impl);

QK_DECLARE_CODECS

}  // namespace qk::encode
