"""The thread pool, OpenMP and oneTBB: `pytest --benchmark-only tests/cpu_kernels/test_bench_thread_pool.py`.

A round is a chain of 20 jobs of 32 tasks of 5 us, as a decode step has them, on two threads:
    back to back    5 us of the caller's own work before each job
    gap             60 us of it
    torch           an operation of torch on all its threads before each job
    lost core       5 us again, while another process computes all the time
extra_info holds `over_us`, the median time of a job beyond its work on two cores that are free, and beyond torch's
operation alone. Run it with GOMP_SPINCOUNT=1000, as qbench does, and without: that changes the behaviour of torch's and
OpenMP's threads.
"""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = (HERE / "thread_contenders.cpp", HERE.parents[1] / "cpu_kernels/csrc/thread_pool.cpp")
RUNTIMES = {"pool": 0, "openmp": 1, "onetbb": 2}
THREADS, JOBS, TASKS, TASK_US = 2, 20, 32, 5.0
GAPS_US = {"back to back": 5.0, "gap": 60.0, "lost core": 5.0}
BUSY = "while True: pass"


def build(folder: Path, *flags: str) -> ctypes.CDLL | None:
    library = folder / f"contenders{len(flags)}.so"
    command = ["g++", "-std=c++20", "-O2", "-fopenmp", "-shared", "-fPIC", f"-I{SOURCES[1].parent}", "-o", library]
    if subprocess.run([*command, *SOURCES, *flags], capture_output=True).returncode:
        return None
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def contenders(tmp_path_factory) -> ctypes.CDLL:
    """The runtimes as one library; oneTBB where the compiler finds it (CPATH, LIBRARY_PATH)."""
    folder = tmp_path_factory.mktemp("contenders")
    library = build(folder, "-DHAVE_TBB=1", "-ltbb") or build(folder)
    if library is None:
        pytest.skip("no g++ with OpenMP here")
    library.run_chain.restype = ctypes.c_double
    library.run_chain.argtypes = [ctypes.c_int] * 2 + [ctypes.c_int64] * 4
    library.run_job.argtypes = [ctypes.c_int] * 2 + [ctypes.c_int64] * 2
    library.start(THREADS)
    yield library
    library.stop()


@pytest.fixture(scope="module")
def steps_a_us(contenders) -> float:
    steps = 1_000_000
    return steps / min(contenders.run_chain(0, 1, 1, 1, steps, 0) for _ in range(5)) / 1e6


@pytest.fixture(params=RUNTIMES)
def runtime(request, contenders) -> int:
    if RUNTIMES[request.param] > contenders.last_runtime():
        pytest.skip("oneTBB is not installed")
    time.sleep(0.1)  # until the threads of the runtime before have gone to sleep
    return RUNTIMES[request.param]


@pytest.mark.parametrize("case", GAPS_US)
def test_a_chain_of_jobs_is_timed(benchmark, contenders, steps_a_us, runtime, case):
    gap_us = GAPS_US[case]
    steps, gap = int(TASK_US * steps_a_us), int(gap_us * steps_a_us)
    rival = subprocess.Popen([sys.executable, "-c", BUSY]) if case == "lost core" else None
    try:
        benchmark.group = f"{case}: {JOBS} jobs of {TASKS} tasks"
        benchmark.pedantic(
            lambda: contenders.run_chain(runtime, THREADS, JOBS, TASKS, steps, gap), rounds=60, warmup_rounds=3
        )
    finally:
        if rival:
            rival.kill()
            rival.wait()
    note(benchmark, benchmark.stats.stats.median / JOBS * 1e6 - gap_us)


def test_jobs_next_to_torch_are_timed(benchmark, contenders, steps_a_us, runtime):
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    x = torch.ones(1, 1 << 16)  # twice torch's limit for one thread
    steps = int(TASK_US * steps_a_us)

    def run() -> None:
        for _ in range(JOBS):
            contenders.run_job(runtime, THREADS, TASKS, steps)
            torch.nn.functional.silu(x)

    try:
        torch_us = []
        for _ in range(100):
            start = time.perf_counter()
            torch.nn.functional.silu(x)
            torch_us.append(1e6 * (time.perf_counter() - start))
        benchmark.group = f"torch: {JOBS} jobs of {TASKS} tasks"
        benchmark.pedantic(run, rounds=60, warmup_rounds=3)
    finally:
        torch.set_num_threads(before)
    note(benchmark, benchmark.stats.stats.median / JOBS * 1e6 - sorted(torch_us)[50])


def note(benchmark, job_us: float) -> None:
    over = job_us - TASKS * TASK_US / THREADS
    benchmark.extra_info |= {"over_us": over, "spin_count": os.environ.get("GOMP_SPINCOUNT", "as it comes")}
