"""Contenders take turns, nothing wrong is timed, and shares are of the measured peaks."""

import time
from dataclasses import replace

import numpy as np
import pytest
from support.close import assert_close

from qbench.kernels import measure as module
from qbench.kernels.benchmark import OURS, Absent, Benchmark
from qbench.kernels.case import deviation
from qbench.kernels.measure import Found, RunPeaks, Untimed, measure, summarize, take_turns
from qbench.measure.host.conditions import CLOCKS

EXPECTED = np.ones((2, 3))


class Sleeper:
    """Gives `value` everywhere after so long."""

    how = "sleeps"

    def __init__(self, log: list, name: str, value: float = 1.0) -> None:
        self.log, self.name, self.value = log, name, value

    def run(self) -> None:
        self.log.append(self.name)

    def output(self) -> np.ndarray:
        return self.value * EXPECTED


def missing():
    raise Absent("it is not installed")


def benchmark_of(contenders) -> Benchmark:
    return Benchmark(
        op="linear_q0",
        shape="3x2",
        tokens=2,
        contenders=contenders,
        calls=4,
        moved_bytes=600,
        operations=1000,
        arithmetic="int8",
        check=lambda y: deviation(y, EXPECTED, 0.25),
    )


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(module, "SETTLE_S", 0.0)
    monkeypatch.setattr(module, "TURN_S", 0.0)


def test_contenders_take_turns_there_and_back(quick):
    log = []
    seconds = take_turns({"a": lambda: log.append("a"), "b": lambda: log.append("b")}, rounds=3)
    assert "".join(log) == "aabbbbaaaabb", "each turn has a run that wakes the threads, and one that counts"
    assert [len(turns) for turns in seconds.values()] == [3, 3]


def test_a_turn_is_filled_with_calls_after_one_that_wakes_the_threads(quick, monkeypatch):
    monkeypatch.setattr(module, "TURN_S", 1.0)
    monkeypatch.setattr(module, "seconds_of", lambda run, clock: run() or 0.3)
    log = []
    assert take_turns({"a": lambda: log.append("a")}, rounds=1) == {"a": [[0.3] * 4]}
    assert len(log) == 5


def test_a_contender_may_report_its_seconds(quick):
    assert take_turns({"a": lambda: 3.0, "b": lambda: None}, lambda: 1.0, 1) == {"a": [[3.0]], "b": [[0.0]]}


def test_a_run_that_fills_its_turn_is_woken_for_too(quick, monkeypatch):
    seconds = iter([9.0, 2.0])
    monkeypatch.setattr(module, "TURN_S", 1.0)
    monkeypatch.setattr(module, "seconds_of", lambda run, clock: next(seconds))
    assert take_turns({"a": lambda: None}, rounds=1) == {"a": [[2.0]]}


def test_a_fast_round_counts_once_with_any_number_of_samples():
    """Pooled, the median of both were that of the fast round; by rounds they agree with the ratio."""
    slow, fast = [4e-6], [1e-6] * 9
    found = {
        OURS: Found(how="x", seconds=[slow, fast, slow]),
        "peer": Found(how="x", seconds=[[8e-6], [2e-6] * 4, [8e-6]]),
    }
    row = summarize(benchmark_of({}), found, RunPeaks([600e6], {"int8": 500e6}))
    ours, peer = row.contenders[OURS], row.contenders["peer"]
    assert_close([ours.ms, peer.ms, peer.ratio["median"]], [4e-3, 8e-3, 2.0], rtol=2.0**-50)
    assert ours.spread_ms["min"] == 1e-3 and peer.ratio["max"] == 2.0


def test_processor_time_leaves_out_other_processes(quick):
    """The least of five: threads that earlier tests left may still be at work in one."""
    turns = (take_turns({"a": lambda: time.sleep(0.05)}, CLOCKS[name], 5)["a"] for name in ("wall", "cpu"))
    wall, cpu = (min(map(min, rounds)) for rounds in turns)
    assert wall >= 0.05 > 5 * cpu


def test_absent_or_wrong_contenders_have_no_time(quick):
    log = []
    found = measure(
        benchmark_of(
            {
                OURS: lambda: Sleeper(log, OURS),
                "wrong": lambda: Sleeper(log, "wrong", 1.5),
                "nan": lambda: Sleeper(log, "nan", np.nan),
                "absent": missing,
            }
        )
    )
    assert found["absent"] == Found(absent="it is not installed")
    assert found["wrong"] == Found(wrong="error 0.5, expected at most 0.25")
    assert found["nan"].seconds is None and found[OURS].seconds
    assert log.count("wrong") == 1  # the run that was checked


@pytest.mark.parametrize("value", [1.5, np.nan])
def test_no_contender_is_timed_if_ours_is_wrong(quick, value):
    log = []
    found = measure(benchmark_of({OURS: lambda: Sleeper(log, OURS, value), "peer": lambda: Sleeper(log, "peer")}))
    assert found[OURS] == Found(wrong=found[OURS].wrong) and found["peer"] == Found(
        absent="not timed, as qbench is wrong"
    )
    assert log == [OURS, "peer"]  # the runs that were checked
    row = summarize(benchmark_of({}), found, RunPeaks([600e6], {"int8": 500e6}))
    assert all(isinstance(entry, Untimed) for entry in row.contenders.values())


def test_figures_are_of_one_call():
    found = {
        OURS: Found(how="avx", seconds=[[2e-6, 2e-6], [2e-6]]),
        "peer": Found(how="x", seconds=[[4e-6], [6e-6]]),
        "absent": Found(absent="no"),
    }
    machine_peaks = RunPeaks(bytes_per_s=[600e6], ops_per_s={"int8": 4000e6})  # bytes take 1 us, operations 0.25 us
    row = summarize(benchmark_of({}), found, machine_peaks)
    ours, peer = row.contenders[OURS], row.contenders["peer"]
    assert row.bound_by == "bytes" and row.contenders["absent"].to_json() == {"absent": "no"}
    assert_close(
        [row.least_ms, ours.ms, ours.gb_s, ours.tera_ops, ours.share],
        [1e-3, 2e-3, 0.3, 5e-4, 0.5],
        rtol=2.0**-50,
    )
    assert ours.samples_ms == [[2e-3, 2e-3], [2e-3]] and "ratio" not in ours.to_json()
    assert_close([peer.ratio["median"], peer.ratio["min"]], [2.5, 2.0], rtol=2.0**-50)


def test_a_share_uses_the_bandwidth_of_the_same_round():
    found = {OURS: Found(how="x", seconds=[[2e-6], [4e-6], [4e-6]])}  # bytes take 1, 2 and 1 us
    row = summarize(benchmark_of({}), found, RunPeaks([600e6, 300e6, 600e6], {"int8": 4000e6}))
    assert_close([row.contenders[OURS].share, row.least_ms], [0.5, 1e-3], rtol=2.0**-50)


def test_operands_in_a_cache_are_not_bound_by_memory():
    found = {OURS: Found(how="x", seconds=[[4e-6]])}
    moved = 4 * 600  # by all calls of a run
    kept, cold = (
        summarize(benchmark_of({}), found, RunPeaks([1e6], {"int8": 500e6}, size)) for size in (moved, moved - 1)
    )
    assert (kept.bound_by, cold.bound_by) == ("operations", "bytes")


def test_a_search_has_no_roofline():
    row = summarize(
        replace(benchmark_of({}), operations=None), {OURS: Found(how="x", seconds=[[1e-6]])}, RunPeaks([1e9], {})
    )
    ours = row.contenders[OURS]
    assert row.bound_by is row.least_ms is ours.share is ours.tera_ops is None and ours.ms == 1e-3


def test_bound_by_operations():
    row = summarize(benchmark_of({}), {OURS: Found(absent="no")}, RunPeaks([600e6], {"int8": 500e6}))
    assert row.bound_by == "operations"
    assert_close(row.least_ms, 2e-3, rtol=2.0**-50)
