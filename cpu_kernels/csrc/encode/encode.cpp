#include "encode/encode.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <stdexcept>
#include <string>

#include "thread_pool.h"

namespace qk::encode {

QK_CODEC_FORMATS(QK_CODEC_TABLE)

#define QK_ENCODER(name) QK_CODEC_ROW("encode_", name)
static constexpr Encoder all_encoders[] = {QK_CODEC_FORMATS(QK_ENCODER)};

std::span<const Encoder> encoders() { return all_encoders; }

static bool all_finite(const float* x, int64_t size) {
    uint32_t carries = 0;  // one more than an exponent of all ones, that of infinity and NaN, carries into the sign
    for (int64_t i = 0; i < size; i++) carries |= (std::bit_cast<uint32_t>(x[i]) & 0x7f800000u) + 0x00800000u;
    return carries >> 31 == 0;
}

Isa run(const Encoder& encoder, const Job& job, int64_t num_blocks, const Impl<Kernel>& impl) {
    const int64_t blocks_per_task = weights_per_task / encoder.block_size;
    const int64_t num_tasks = (num_blocks + blocks_per_task - 1) / blocks_per_task;
    std::atomic<Isa> ran{impl.isa};
    std::atomic<bool> finite{true};
    thread_pool()->run(num_tasks, [&](int64_t task) {
        const int64_t begin = task * blocks_per_task;
        const int64_t end = std::min(num_blocks, begin + blocks_per_task);
        if (all_finite(job.blocks + begin * encoder.block_size, (end - begin) * encoder.block_size))
            ran.store(impl.kernels(job, begin, end), std::memory_order_relaxed);
        else
            finite.store(false, std::memory_order_relaxed);
    });
    if (!finite) throw std::invalid_argument("blocks: got NaN or infinity, expected finite weights");
    return ran;
}

}  // namespace qk::encode
