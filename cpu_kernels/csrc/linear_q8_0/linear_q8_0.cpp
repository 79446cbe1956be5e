#include "linear_q8_0/linear_q8_0.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "thread_pool.h"

namespace qk::linear_q8_0 {

static constexpr Impl<Kernels> impls[] = {
#if QK_X86_KERNELS
    {Isa::avx512_vnni, bit(Isa::avx512) | bit(Isa::avx512_vnni), {avx512_vnni::quantize_row, avx512_vnni::multiply}},
    {Isa::avx2, bit(Isa::avx2), {avx2::quantize_row, avx2::multiply}},
#endif
    {Isa::scalar, bit(Isa::scalar), {scalar::quantize_row, scalar::multiply}},
};

std::span<const Impl<Kernels>> table() { return impls; }

// Tokens quantized at a time. The weights stream from memory once a chunk, at 2 * 512 operations a byte about
// fifty times what the bandwidth asks for; the chunk itself, 2.5 MiB at K = 2048, stays in the L3.
static constexpr int64_t chunk_tokens = 512;

// Below this one thread rounds the activations sooner than a second one wakes (about 2 us).
static constexpr int64_t parallel_quantize_size = 1 << 15;

// Tasks a thread: enough that a thread which loses its core for a while leaves the rest to the others.
static constexpr int64_t tasks_per_thread = 16;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static void quantize(const float* x, int64_t num_tokens, int64_t num_blocks, ActivationBlock* out,
                     const Kernels& kernels, ThreadPool& pool) {
    const auto quantize_token = [&](int64_t token) {
        kernels.quantize_row(x + token * num_blocks * block_size, num_blocks, out + token * num_blocks);
    };
    if (num_tokens * num_blocks * block_size >= parallel_quantize_size)
        pool.run(num_tokens, quantize_token);
    else
        for (int64_t token = 0; token < num_tokens; token++) quantize_token(token);
}

static Isa multiply(const PackedWeight& weight, const Activations& activations, const Kernels& kernels,
                    ThreadPool& pool) {
    // Whole pairs of panels a task, the width of the widest tile.
    const int64_t num_pairs = ceil_div(weight.num_panels(), 2);
    const int64_t num_tasks = std::min(num_pairs, tasks_per_thread * pool.num_threads());
    std::atomic<Isa> ran{};
    pool.run(num_tasks, [&](int64_t task) {
        const int64_t begin = 2 * (num_pairs * task / num_tasks);
        const int64_t end = std::min(weight.num_panels(), 2 * (num_pairs * (task + 1) / num_tasks));
        ran.store(kernels.multiply(weight, begin, end, activations), std::memory_order_relaxed);
    });
    return ran.load(std::memory_order_relaxed);
}

Isa linear(const PackedWeight& weight, const float* x, int64_t num_tokens, float* y, const Impl<Kernels>& impl) {
    const std::shared_ptr<ThreadPool> pool = thread_pool();
    thread_local std::vector<ActivationBlock> blocks;  // kept: a decode step allocates nothing
    const size_t needed = std::min(num_tokens, chunk_tokens) * weight.num_blocks;
    if (blocks.size() < needed) blocks.resize(needed);
    Isa ran = impl.isa;
    for (int64_t token = 0; token < num_tokens; token += chunk_tokens) {
        const int64_t tokens = std::min(chunk_tokens, num_tokens - token);
        quantize(x + token * weight.num_blocks * block_size, tokens, weight.num_blocks, blocks.data(), impl.kernels,
                 *pool);
        const Activations activations{blocks.data(), tokens, y + token * weight.num_rows, weight.num_rows};
        ran = multiply(weight, activations, impl.kernels, *pool);
    }
    return ran;
}

}  // namespace qk::linear_q8_0
