"""GPTQ's steps and torch's, as they are timed: right, and errors are seen."""

import numpy as np
import pytest

from qbench.kernels import gptq_benchmarks as module
from qbench.kernels.benchmark import OURS
from qbench.kernels.gptq_benchmarks import STEPS, gptq_benchmark
from qbench.kernels.timed import benchmarks, timed_ops

CONTENDERS = {
    "gram": (OURS, "torch-float32", "torch-bfloat16"),
    "gptq_factor": (OURS, "torch-chain"),
    "gptq_feedback": (OURS, "torch-blocks"),
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(module, "SIZE", 256)
    monkeypatch.setattr(module, "TOKENS", 300)
    monkeypatch.setattr(module, "BLOCK", 64)


@pytest.mark.parametrize("op, who", [(op, who) for op, names in CONTENDERS.items() for who in names])
def test_all_contenders_are_right_and_errors_are_found(op, who):
    benchmark = gptq_benchmark(op)
    assert tuple(benchmark.contenders) == CONTENDERS[op]
    contender = benchmark.contenders[who]()
    contender.run()
    out = contender.output()
    assert benchmark.check(out).is_right
    contender.run()
    np.testing.assert_array_equal(contender.output(), out)
    assert not benchmark.check(np.roll(out, 1, axis=0)).is_right
    assert not benchmark.check(np.full_like(out, 3)).is_right
    assert contender.how


def test_operations_are_counted_as_the_loops_do_them():
    """Small enough to count: a multiply and an add are two."""
    gram, factor, feedback = map(gptq_benchmark, STEPS)
    pairs = sum(size - first for size in (256,) for first in range(size))
    assert gram.operations == 2 * 300 * pairs
    steps = sum(2 * (256 - k) * (256 - k + 1) // 2 for k in range(1, 257))  # of the outer product of column k
    assert abs(factor.operations - steps) <= 256**2
    later = sum(256 - 1 - c for c in range(256))
    own = sum(64 - 1 - c for c in range(64)) * 4
    assert abs(feedback.operations - 2 * 256 * (later + own)) <= 256 * 256 * 4


def test_they_are_among_the_timed_ops():
    assert set(STEPS) <= set(timed_ops())
    assert [one.op for one in benchmarks("gptq", (1,), threads=1)] == ["gptq_factor", "gptq_feedback"]
