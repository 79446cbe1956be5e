"""One contender of a case of `qbench kernels` under pytest-benchmark."""

import pytest

import cpu_kernels
from qbench.kernels.benchmark import Absent, Benchmark


def time_contender(benchmark, case: Benchmark, name: str, tokens: int) -> None:
    """Checked, then timed; skipped where the contender is not installed."""
    try:
        contender = case.contenders[name]()
    except Absent as absent:
        pytest.skip(str(absent))
    contender.run()
    assert case.check(contender.output()).is_right
    benchmark.group = case.label
    benchmark.pedantic(contender.run, rounds=10 if tokens < 64 else 3)
    seconds = benchmark.stats.stats.median / case.calls
    benchmark.extra_info |= {
        "call_ms": 1e3 * seconds,
        "gb_s": case.moved_bytes / seconds / 1e9,
        "tera_ops": case.operations / seconds / 1e12,
        "threads": cpu_kernels.get_num_threads(),
        "how": contender.how,
    }
