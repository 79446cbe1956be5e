"""A peak counts only if its threads had their cores."""

import os

import pytest
from support.measuring import benched

import cpu_kernels
from qbench.cli.bench_lines import lacks_peak, readable
from qbench.measure.metrics import Metrics
from qbench.speed import peaks as module
from qbench.speed.peaks import TRIES, largest_peak, measure_op_peaks, measure_peak
from qbench.speed.units import ARITHMETICS, Unit

measure_unpatched = cpu_kernels.measure_fp32_peak  # before the fixture of this package says that nobody else is there


@pytest.fixture(autouse=True)
def nothing_measured_before(monkeypatch):
    monkeypatch.setattr(module, "_largest", {})
    monkeypatch.setattr(module, "available_cores", lambda: 2)


@pytest.fixture
def measured(monkeypatch):
    """Pairs of rate and cores that the measurements give, one after the other; those of every arithmetic."""
    found = []
    monkeypatch.setattr(module, "unit_isas", lambda: dict.fromkeys(ARITHMETICS, "avx9"))
    for name in ARITHMETICS:
        monkeypatch.setattr(cpu_kernels, f"measure_{name}_peak", lambda threads: found.pop(0))
    return found


def test_the_peak_of_one_core_is_not_that_of_two(measured):
    measured += [(1.0, 1.0), (1.1, 1.02), (2.0, 1.97)]
    assert largest_peak("fp32", 2) == 2.0 and not measured, "it is measured again until both threads had a core"


def test_a_machine_that_others_hold_has_no_peak(measured):
    measured += [(1.0, 1.0)] * TRIES
    assert largest_peak("fp32", 2) is None and not measured
    measured.append((1.0, 1.1))
    assert largest_peak("fp32", 2) is None and not measured, "it was tried often enough"
    measured += [(2.0, 2.0), (2.1, 1.5), (2.05, 1.9)]
    assert [largest_peak("fp32", 2) for _ in range(3)] == [2.0, 2.0, 2.05], "and what came later counts"


def test_more_threads_than_cores_have_the_cores(measured):
    measured += [(2.0, 1.9), (2.0, 1.7)]
    assert (measure_peak("fp32", 4), measure_peak("fp32", 4)) == (2.0, None)


def test_threads_on_one_core_have_no_peak(monkeypatch):
    """Two threads that may run on one core alone, on a machine that has two: measured, not injected."""
    monkeypatch.setattr(cpu_kernels, "measure_fp32_peak", measure_unpatched)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert measure_peak("fp32", 2) is None
    finally:
        os.sched_setaffinity(0, allowed)


def test_only_a_measured_value_is_a_peak(measured):
    measured += [(1.0, 1.0)] * 3 * TRIES + [(1.0, 2.0)]
    assert measure_op_peaks(2) == {"fp32": Unit("avx9 fp32", 1.0)} and not measured


def test_a_row_without_a_peak_gives_no_share_and_a_note(measured):
    measured += [(1.0, 1.0)] * len(ARITHMETICS) * TRIES
    row = benched("rand:tiny", pp=8, tg=4, repetitions=2, threads=2)
    assert row["roofline"]["pp"] is row["roofline"]["tg"] is None and row["pp_tok_s"] > 0
    assert row["roofline"]["peak_ops_per_s"] == row["machine_peaks"]["ops_per_s"] == {}
    metrics = Metrics.from_json(row)
    assert lacks_peak(metrics) and "roofline" not in readable(metrics)["pp8"]
    measured += [(1.0, 2.0)] * len(ARITHMETICS)
    again = benched("rand:tiny", pp=8, tg=4, repetitions=2, threads=2, machine_peaks=row["machine_peaks"])
    assert again["roofline"]["pp"] > 0 and not lacks_peak(Metrics.from_json(again)), "a lack is not taken over"
