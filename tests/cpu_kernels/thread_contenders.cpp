// Three ways to run a job of many short tasks on all cores, behind one C function: the project's pool, OpenMP, oneTBB.
// Built by test_bench_thread_pool.py, which says what is measured.
#include <omp.h>

#include <chrono>
#include <cstdint>
#include <memory>

#ifndef HAVE_TBB
#define HAVE_TBB 0
#endif
#if HAVE_TBB
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#endif

#include "thread_pool.h"

namespace {

std::unique_ptr<qk::ThreadPool> own;

// Dependent multiplications that no compiler removes: 4 cycles each.
void work(int64_t steps) {
    double value = 1.0;
    for (int64_t i = 0; i < steps; i++) {
        value *= 0.999999;
        asm volatile("" : "+x"(value));
    }
}

void job(int runtime, int threads, int64_t tasks, int64_t steps) {
    switch (runtime) {
    case 0:
        own->run(tasks, [steps](int64_t) { work(steps); });
        break;
    case 1:
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
        for (int64_t i = 0; i < tasks; i++) work(steps);
        break;
#if HAVE_TBB
    case 2:
        tbb::parallel_for(int64_t{0}, tasks, [steps](int64_t) { work(steps); }, tbb::simple_partitioner());
        break;
#endif
    }
}

}  // namespace

extern "C" {

int last_runtime() { return HAVE_TBB ? 2 : 1; }

void run_job(int runtime, int threads, int64_t tasks, int64_t steps) { job(runtime, threads, tasks, steps); }

// `jobs` jobs, each after `gap` steps on the caller's thread alone. returns seconds
double run_chain(int runtime, int threads, int64_t jobs, int64_t tasks, int64_t steps, int64_t gap) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < jobs; i++) {
        work(gap);
        job(runtime, threads, tasks, steps);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void start(int threads) {
    own = std::make_unique<qk::ThreadPool>(threads);
#if HAVE_TBB
    static std::unique_ptr<tbb::global_control> limit;
    limit = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism, threads);
#endif
}

void stop() { own.reset(); }
}
