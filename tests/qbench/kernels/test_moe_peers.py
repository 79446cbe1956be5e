"""kt-kernel's experts: as the protocol has it with a stand-in, and its own where QBENCH_KT_PYTHON has it."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import support

from qbench.kernels import measure as measuring
from qbench.kernels import moe_benchmarks as module
from qbench.kernels.benchmark import Absent
from qbench.kernels.measure import Found, measure
from qbench.kernels.moe_benchmarks import BACKENDS_OF, KtLayers, moe_benchmarks
from qbench.kernels.peers.kt import experts
from qbench.kernels.peers.kt.experts import VARIABLE, contender_name
from qbench.measure.host.conditions import CLOCKS

INSTALLED = os.environ.get(VARIABLE)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(module, "SHAPES", ((256, 512, 8, 2),))
    monkeypatch.setattr(module, "COLD_BYTES", 3_000_000)
    monkeypatch.setattr(measuring, "ROUNDS", 1)
    monkeypatch.setattr(measuring, "TURN_S", 0.0)


@pytest.fixture
def python(monkeypatch):
    """Which Python is asked for kt-kernel"""

    def name(path: str | None) -> None:
        monkeypatch.delenv(VARIABLE, raising=False)
        if path is not None:
            monkeypatch.setenv(VARIABLE, path)
        experts.kt_python.cache_clear()

    yield name
    experts.kt_python.cache_clear()


@pytest.fixture
def stand_in(python, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(support.__file__).parent / "fake_kt"))
    python(sys.executable)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_it_is_timed_in_its_process_while_ours_waits(small, stand_in):
    processes = set()
    for benchmark in moe_benchmarks("bf16", (1, 5), 1):
        contender = benchmark.contenders[contender_name()]()
        assert 0 < contender.run() < 60
        y = contender.output()
        check = benchmark.own_checks[contender_name()]
        assert y.shape == (benchmark.tokens, 256) and check(y).is_right
        assert not check(1.5 * y).is_right and not check(np.full_like(y, np.nan)).is_right
        processes.add(process := contender.layer.process)
        assert is_stopped(process.pid) and contender.how == "AMXBF16_MOE, the fastest of BF16"
        row = measure(benchmark)
        assert row[contender_name()].seconds[0][0] * benchmark.calls < 60
        told = measure(benchmark, CLOCKS["cpu"])[contender_name()]
        assert told == Found(absent=told.absent) and "processor time" in told.absent
    assert len(processes) == 1 and process.returncode is not None  # for all numbers of tokens, and ended with them


@pytest.mark.parametrize("path, reason", [(None, "names no Python"), ("/nowhere/python", "does not import")])
def test_the_reason_for_its_absence_is_reported_once(small, python, path, reason):
    python(path)
    (benchmark,) = moe_benchmarks("q4_k", (1,), 1)
    absent = [entry.absent for entry in measure(benchmark).values() if entry.absent is not None]
    assert len(absent) == 1 and reason in absent[0]


@pytest.mark.exhaustive("four seconds; a missing backend is in every run")
def test_a_backend_that_does_not_start_is_absent(small, stand_in):
    (benchmark,) = moe_benchmarks("q8_0", (1,), 1)  # the stand-in has bf16 alone
    with pytest.raises(Absent, match="ended with code 1"):
        benchmark.contenders[contender_name()]()


def test_each_backend_holds_some_formats():
    sizes = {"hidden_size": 2048, "ffn_size": 1408}
    assert KtLayers("q4_k", [None] * 3, sizes).names == ["RAWINT4", "INT4"]  # 1408 is no multiple of 256
    assert KtLayers("q4_k", [None] * 3, sizes | {"ffn_size": 768}).names == ["Q4_K", "RAWINT4", "INT4"]
    assert KtLayers("q5_k", [None] * 3, sizes).names == []


@pytest.mark.skipif(not INSTALLED, reason=f"{VARIABLE} names no Python that has kt-kernel")
@pytest.mark.parametrize("name", BACKENDS_OF)
def test_its_backends_give_the_sum_of_experts(small, name):
    for benchmark in moe_benchmarks(name, (1, 40), 2):
        contender = benchmark.contenders[contender_name()]()
        contender.run()
        check = benchmark.own_checks[contender_name()]
        assert check(contender.output()).is_right and not check(1.5 * contender.output()).is_right
