#include "decode/decode.h"

#include <algorithm>
#include <atomic>

#include "thread_pool.h"

namespace qk::decode {

QK_CODEC_FORMATS(QK_CODEC_TABLE)

#define QK_DECODER(name) QK_CODEC_ROW("decode_", name)
static constexpr Decoder all_decoders[] = {QK_CODEC_FORMATS(QK_DECODER)};

std::span<const Decoder> decoders() { return all_decoders; }

Isa run(const Decoder& decoder, const Job& job, int64_t num_blocks, const Impl<Kernel>& impl) {
    const int64_t blocks_per_task = weights_per_task / decoder.block_size;
    std::atomic<Isa> ran{impl.isa};
    thread_pool()->run((num_blocks + blocks_per_task - 1) / blocks_per_task, [&](int64_t task) {
        const int64_t begin = task * blocks_per_task;
        ran.store(impl.kernels(job, begin, std::min(num_blocks, begin + blocks_per_task)), std::memory_order_relaxed);
    });
    return ran;
}

}  // namespace qk::decode
