#include "roofline/roofline.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>

#include "buffer.h"
#include "thread_pool.h"

namespace qk::roofline {
namespace {

constexpr Impl<ReadKernel> read_impls[] = {QK_IMPLS(QK_KERNEL, read)};

constexpr Impl<PeakKernel> int8_impls[] = {
#if QK_X86_KERNELS
    {Isa::amx, bit(Isa::amx), {amx::int8_chains}},
    {Isa::avx512_vnni, bit(Isa::avx512) | bit(Isa::avx512_vnni), {avx512_vnni::int8_chains}},
    {Isa::avx512, bit(Isa::avx512), {avx512::int8_chains}},
    {Isa::avx_vnni, bit(Isa::avx2) | bit(Isa::avx_vnni), {avx_vnni::int8_chains}},
    {Isa::avx2, bit(Isa::avx2), {avx2::int8_chains}},
#endif
    {Isa::scalar, bit(Isa::scalar), {scalar::int8_chains}},
};

constexpr Impl<PeakKernel> int16_impls[] = {
#if QK_X86_KERNELS
    {Isa::avx512_vnni, bit(Isa::avx512) | bit(Isa::avx512_vnni), {avx512_vnni::int16_chains}},
    {Isa::avx512, bit(Isa::avx512), {avx512::int16_chains}},
    {Isa::avx2, bit(Isa::avx2), {avx2::int16_chains}},
#endif
    {Isa::scalar, bit(Isa::scalar), {scalar::fp32_chains}},
};

constexpr Impl<PeakKernel> bf16_impls[] = {
#if QK_X86_KERNELS
    {Isa::amx, bit(Isa::amx), {amx::bf16_chains}},
    {Isa::avx512_bf16, bit(Isa::avx512) | bit(Isa::avx512_bf16), {avx512_bf16::bf16_chains}},
#endif
    QK_IMPLS(QK_KERNEL, fp32_chains),
};

constexpr Impl<PeakKernel> fp32_impls[] = {QK_IMPLS(QK_KERNEL, fp32_chains)};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr double measure_seconds = 0.3;

// The highest of the rates that `run` returns within the given seconds: the machine's best, as other work on
// it only ever slows a run down.
template <class Run>
double best_rate(const Run& run, double seconds) {
    double best = 0;
    const auto start = Clock::now();
    do {
        const auto begin = Clock::now();
        const double amount = run();
        best = std::max(best, amount / seconds_since(begin));
    } while (seconds_since(start) < seconds);
    return best;
}

ThreadPool make_pool(int64_t threads) {
    if (threads < 1 || threads > 1024)
        throw std::invalid_argument("threads: got " + std::to_string(threads) + ", expected 1 to 1024");
    return ThreadPool(static_cast<int>(threads));
}

// Nanoseconds that this thread has been on a processor.
int64_t processor_ns() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

Peak peak(int64_t threads, const PeakKernel& kernel) {
    ThreadPool pool = make_pool(threads);
    constexpr int tasks_per_thread = 8;
    // 0.1 ms per task with 16 chains at two per cycle. A run of 8 tasks takes its start and its clocks under 1 %.
    constexpr int64_t repeats = 1 << 16;
    Peak best;
    const auto start = Clock::now();
    do {
        std::atomic<int64_t> operations{0}, busy_ns{0};
        const auto begin = Clock::now();
        pool.run(threads * tasks_per_thread, [&](int64_t) {
            const int64_t before = processor_ns();
            operations += kernel.run(repeats);
            busy_ns += processor_ns() - before;
        });
        const double seconds = seconds_since(begin);
        const double rate = static_cast<double>(operations.load()) / seconds;
        if (rate > best.ops_per_s) best = {rate, 1e-9 * static_cast<double>(busy_ns.load()) / seconds};
    } while (seconds_since(start) < measure_seconds);
    return best;
}

}  // namespace

std::span<const Impl<ReadKernel>> read_table() { return read_impls; }
std::span<const Impl<PeakKernel>> int8_table() { return int8_impls; }
std::span<const Impl<PeakKernel>> int16_table() { return int16_impls; }
std::span<const Impl<PeakKernel>> bf16_table() { return bf16_impls; }
std::span<const Impl<PeakKernel>> fp32_table() { return fp32_impls; }

double read_bandwidth(int64_t threads, double seconds) {
    const ReadKernel kernel = choose("read_bandwidth", read_table(), std::nullopt).kernels;
    ThreadPool pool = make_pool(threads);
    constexpr int64_t size = int64_t{512} << 20;    // 16 times a 32 MiB L3
    constexpr int64_t window = int64_t{64} << 20;   // read in one run: 2 ms, less than a time slice
    constexpr int64_t task_size = int64_t{1} << 20;
    Buffer buffer(size);
    // Written first: pages never written are all one and the same page of zeros.
    pool.run(size / task_size, [&](int64_t i) { std::memset(buffer.data() + i * task_size, 1, task_size); });
    std::atomic<uint64_t> sum{0};
    int64_t begin = 0;  // the windows go round the buffer, so that none is left in a cache
    return best_rate(
        [&] {
            const uint8_t* data = buffer.data() + begin;
            pool.run(window / task_size, [&](int64_t i) { sum += kernel.read(data + i * task_size, task_size); });
            begin = (begin + window) % size;
            return static_cast<double>(window);
        },
        seconds);
}

Peak int8_peak(int64_t threads) { return peak(threads, choose("int8_peak", int8_table(), std::nullopt).kernels); }

Peak int16_peak(int64_t threads) { return peak(threads, choose("int16_peak", int16_table(), std::nullopt).kernels); }

Peak bf16_peak(int64_t threads) { return peak(threads, choose("bf16_peak", bf16_table(), std::nullopt).kernels); }

Peak fp32_peak(int64_t threads) { return peak(threads, choose("fp32_peak", fp32_table(), std::nullopt).kernels); }

}  // namespace qk::roofline
