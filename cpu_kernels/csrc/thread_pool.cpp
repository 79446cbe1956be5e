#include "thread_pool.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include "spin.h"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace qk {
namespace {

// A thread that sleeps is back at work 10 to 80 us after its wake-up, as measured on a virtual machine, when a job of a
// decode step may be over. The longest gaps in one (Python, sampling) are about 150 us: it stays awake through them.
constexpr std::chrono::microseconds stay_awake{200};
constexpr int pauses_a_look = 32;  // about 1 us, at 20 (AMD) to 45 ns (Intel) per pause: as the clock and a yield

// Returns the value once it differs from `old`.
int wait_for_change(const std::atomic<int>& value, int old) {
    const auto until = std::chrono::steady_clock::now() + stay_awake;
    do {
        for (int i = 0; i < pauses_a_look; i++) {
            const int now = value.load(std::memory_order_acquire);
            if (now != old) return now;
            pause();
        }
        std::this_thread::yield();  // to whoever has work for this core: a thread of torch, or one of ours
    } while (std::chrono::steady_clock::now() < until);
    value.wait(old, std::memory_order_acquire);
    return value.load(std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) : runs_(num_threads) {
    for (int i = 1; i < num_threads; i++) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
    stopping_ = true;
    jobs_posted_++;
    jobs_posted_.notify_all();
    for (auto& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t num_tasks, Call call, const void* context) {
    std::unique_lock lock(one_job_, std::try_to_lock);
    if (!lock || workers_.empty() || num_tasks == 1) {
        for (int64_t i = 0; i < num_tasks; i++) call(context, i);
        return;
    }
    call_ = call;
    context_ = context;
    const auto num_runs = static_cast<int64_t>(runs_.size());
    for (int64_t i = 0; i < num_runs; i++) {
        runs_[i].next.store(num_tasks * i / num_runs, std::memory_order_relaxed);
        runs_[i].end = num_tasks * (i + 1) / num_runs;
    }
    const bool is_timed = timeline::recorder != nullptr && timeline::recorder->is_wall();
    is_timed ? run_timed() : run_job();
}

// The job's time on the caller's timeline, if its threads were busy all the time: the rest goes to wake-ups and waits.
void ThreadPool::run_timed() {
    timeline::Recorder* const recorder = std::exchange(timeline::recorder, nullptr);  // tasks are part of the job
    timed_.busy_ns = timed_.late_ns = 0;
    timed_.num_begun = 0;
    timed_.start = timeline::Clock::now();
    timed_.is_on = true;
    run_job();
    timed_.is_on = false;
    const double seconds = std::chrono::duration<double>(timeline::Clock::now() - timed_.start).count();
    const int num_threads = this->num_threads(), absent = num_threads - timed_.num_begun;
    const double late =
        1e-9 * static_cast<double>(timed_.late_ns.load()) / num_threads + seconds * absent / num_threads;
    const double busy = 1e-9 * static_cast<double>(timed_.busy_ns.load()) / num_threads;
    recorder->move(late, timeline::Part::wake_ups);
    recorder->move(std::max(0.0, seconds - late - busy), timeline::Part::waits);
    timeline::recorder = recorder;
}

void ThreadPool::run_job() {
    gate_.store(gate_open, std::memory_order_release);
    jobs_posted_.fetch_add(1, std::memory_order_release);
    jobs_posted_.notify_all();
    timed_.is_on ? take_timed(0) : take_tasks(0);
    int inside = gate_.fetch_and(~gate_open, std::memory_order_acq_rel) & ~gate_open;
    while (inside != 0) inside = wait_for_change(gate_, inside);
}

void ThreadPool::work(int thread) {
    int seen = 0;
    for (;;) {
        seen = wait_for_change(jobs_posted_, seen);
        if (stopping_) return;
        if (!enter()) continue;
        timed_.is_on ? take_timed(thread) : take_tasks(thread);
        if (gate_.fetch_sub(1, std::memory_order_acq_rel) == 1) gate_.notify_one();
    }
}

void ThreadPool::take_tasks(int thread) noexcept {
    for (size_t i = 0; i < runs_.size(); i++) {
        Run& run = runs_[(thread + i) % runs_.size()];
        if (run.next.load(std::memory_order_relaxed) >= run.end) continue;  // no write to lines that others read
        for (int64_t task; (task = run.next.fetch_add(1, std::memory_order_relaxed)) < run.end;) call_(context_, task);
    }
}

void ThreadPool::take_timed(int thread) noexcept {
    const auto nanoseconds = [](timeline::Clock::duration time) {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    };
    const timeline::Clock::time_point begin = timeline::Clock::now();
    take_tasks(thread);
    timed_.busy_ns += nanoseconds(timeline::Clock::now() - begin);
    timed_.late_ns += nanoseconds(begin - timed_.start);
    timed_.num_begun++;
}

bool ThreadPool::enter() {
    int gate = gate_.load(std::memory_order_relaxed);
    while (gate & gate_open)
        if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) return true;
    return false;
}

namespace {

struct Shared {
    std::mutex mutex;
    std::shared_ptr<ThreadPool> pool;
    int num_threads = 0;  // 0: as many as this process may use
};

// Never destroyed: joining threads from a static destructor can hang an interpreter on its way out.
Shared* shared = new Shared;

int usable_cpus() {
#if defined(__linux__)
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) return CPU_COUNT(&cpus);
#endif
    return std::max(1u, std::thread::hardware_concurrency());
}

// The child of a fork has one thread, and perhaps a lock that no one will open: leave the old behind.
[[maybe_unused]] void start_over_after_fork() {
    auto* fresh = new Shared;
    fresh->num_threads = shared->num_threads;
    shared = fresh;
}

}  // namespace

std::shared_ptr<ThreadPool> thread_pool() {
#if defined(__linux__)
    [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, start_over_after_fork);
#endif
    std::lock_guard lock(shared->mutex);
    if (!shared->pool)
        shared->pool = std::make_shared<ThreadPool>(shared->num_threads ? shared->num_threads : usable_cpus());
    return shared->pool;
}

void set_num_threads(int64_t num_threads) {
    constexpr int64_t most = 1024;
    if (num_threads < 1 || num_threads > most)
        throw std::invalid_argument("num_threads: got " + std::to_string(num_threads) + ", expected 1 to " +
                                    std::to_string(most));
    std::shared_ptr<ThreadPool> retired;  // joins its threads after the lock is open again
    std::lock_guard lock(shared->mutex);
    shared->num_threads = static_cast<int>(num_threads);
    if (shared->pool && shared->pool->num_threads() != num_threads) retired = std::move(shared->pool);
}

}  // namespace qk
