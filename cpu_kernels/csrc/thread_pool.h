// Threads that wait for work, and one loop over tasks.
//
// Workers look for the next job for a while, since the next kernel of a decode step follows soon, giving way to
// whoever else wants the core at every look, and then sleep on a futex. Each thread has a run of neighbouring tasks and
// takes them one by one, then those of the others' runs, the caller included, which waits only for workers that took
// one: a thread that loses its core, or that the system has not woken yet, delays nobody. Neighbouring tasks read
// neighbouring memory as a rule: so each thread reads one stream from end to end, which the processor's prefetching
// follows. Handed out in turn, tasks of 256 KiB were read at 0.9 of the bandwidth.
//
// Why not OpenMP or oneTBB, which tests/cpu_kernels/test_bench_thread_pool.py measures too: on quiet cores OpenMP is
// its equal, but its regions end when the last thread has arrived, with work or without, and where another process runs
// on one of the cores that takes milliseconds; it also hangs in the child of a fork. oneTBB's workers leave after each
// job and come back too late for the next. No pool can share cores well with OpenMP threads that spin for
// milliseconds after each region of torch: its user sets GOMP_SPINCOUNT against that.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "timeline.h"

namespace qk {

class ThreadPool {
public:
    explicit ThreadPool(int num_threads);  // the caller counts as one of them
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;

    int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Calls task(i) for each i in [0, num_tasks), in any order, on any thread; returns when all are done.
    // A task that throws ends the process: others may still be at work on memory that its caller would leave.
    // A second caller at the same time does its tasks alone on its own thread.
    template <class Task>
    void run(int64_t num_tasks, const Task& task) {
        run(num_tasks, [](const void* context, int64_t i) { (*static_cast<const Task*>(context))(i); }, &task);
    }

private:
    using Call = void (*)(const void* context, int64_t i);

    void run(int64_t num_tasks, Call call, const void* context);
    void run_timed();
    void run_job();
    void work(int thread);
    void take_timed(int thread) noexcept;
    void take_tasks(int thread) noexcept;
    bool enter();

    // The job. Written while the gate is closed and empty, read by those who entered.
    Call call_ = nullptr;
    const void* context_ = nullptr;
    struct alignas(64) Run {  // a cache line each
        std::atomic<int64_t> next{0};
        int64_t end = 0;
    };
    std::vector<Run> runs_;  // [threads]; the caller's first

    // Bit 30: the job may be entered. Below: how many workers are inside.
    static constexpr int gate_open = 1 << 30;
    std::atomic<int> gate_{0};
    std::atomic<int> jobs_posted_{0};  // workers sleep until it changes
    std::atomic<bool> stopping_{false};

    // A job whose caller records its timeline: thread-seconds in tasks, and from its start until a thread begins.
    struct Timed {
        bool is_on = false;
        timeline::Clock::time_point start;
        std::atomic<int64_t> busy_ns{0}, late_ns{0};
        std::atomic<int> num_begun{0};
    };
    Timed timed_;

    std::mutex one_job_;
    std::vector<std::thread> workers_;
};

// The pool that every kernel uses, made at its first use with as many threads as this process has CPUs. After a
// fork the child makes its own, as threads do not survive a fork. Results never depend on the number of threads.
std::shared_ptr<ThreadPool> thread_pool();

// From the next kernel on. Throws std::invalid_argument unless 1 <= num_threads <= 1024.
void set_num_threads(int64_t num_threads);

}  // namespace qk
