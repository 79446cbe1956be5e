"""What a machine can do at most: when a case may take what an earlier one measured, and when it measures anew."""

import time
from types import SimpleNamespace

import pytest
from support.measuring import benched

from qbench.measure.metrics import Samples, SpeedFigures
from qbench.speed import bench as bench_module
from qbench.speed import machine_peaks as peaks_module
from qbench.speed.bench import bench_cases
from qbench.speed.machine_peaks import MOST_AGE_S, CurrentPeaks, busy_during
from qbench.speed.speed_case import SpeedCase

CASE = {"pp": 8, "tg": 4, "repetitions": 2, "threads": 1}


def machine_peaks(threads: int = 1, busy: float | None = 0.0, age: float = 5.0) -> CurrentPeaks:
    return CurrentPeaks(threads, (4e9, 5e9), {"fp32": 1e11, "int8": 4e11, "bf16": 2e11}, busy, time.time() - age)


@pytest.fixture
def measured(monkeypatch):
    """How often the machine was measured, and what others take of it."""
    found = {"bandwidth": 0, "ops": 0, "busy": 0.0}

    now = 0.0

    def count(what, value):
        nonlocal now
        now += 1.0  # second, for each
        found[what] += 1
        return value

    for module in (bench_module, peaks_module):
        monkeypatch.setattr(module, "measure_bandwidth", lambda threads, device: count("bandwidth", 1e10))
    ops = {"fp32": 1e11, "int8": 4e11, "bf16": 2e11}
    monkeypatch.setattr(peaks_module, "measure_op_peaks", lambda threads, device: count("ops", ops))
    for module in (bench_module, peaks_module):
        monkeypatch.setattr(module, "busy_during", lambda speed: found["busy"])
    monkeypatch.setattr(bench_module, "time", SimpleNamespace(perf_counter=lambda: now))
    return found


def test_a_case_alone_measures_before_and_after(measured):
    row = benched("rand:tiny", **CASE)
    assert (measured["bandwidth"], measured["ops"]) == (2, 1)
    assert row["machine_peaks"]["measured_s_ago"] < 1 and row["machine_peaks"]["bandwidths"] == [1e10, 1e10]
    assert row["machine_peaks_seconds"] == 3.0


def test_a_row_of_fewer_threads_is_held_against_their_bandwidth_alone(measured, monkeypatch):
    for module in (bench_module, peaks_module):
        monkeypatch.setattr(module, "measure_bandwidth", lambda threads, device: threads * 1e10)
    case = SpeedCase(pp=8, tg=4, repetitions=2)
    rows = list(row.to_json() for row in bench_cases("rand:tiny", [case, case], threads=(2, 1)))
    assert [row["machine_peaks"]["bandwidths"] for row in rows] == [[2e10, 2e10]] * 2 + [[1e10, 1e10]] * 2


def test_young_ones_are_taken_and_their_age_is_told(measured):
    row = benched("rand:tiny", **CASE, machine_peaks=machine_peaks().kept())
    assert (measured["bandwidth"], measured["ops"], row["machine_peaks_seconds"]) == (0, 0, 0.0)
    assert 5 <= row["machine_peaks"]["measured_s_ago"] < 60
    assert row["roofline"]["bandwidth_bytes_per_s"] == 5e9 and row["roofline"]["bandwidths_bytes_per_s"] == [4e9, 5e9]
    again = benched("rand:tiny", **CASE, machine_peaks=row["machine_peaks"])
    assert again["machine_peaks"]["time"] == row["machine_peaks"]["time"]


@pytest.mark.parametrize(
    "stale, bandwidths",
    [
        pytest.param({"age": MOST_AGE_S + 1}, 2, id="old"),
        pytest.param({"age": -60}, 2, id="from a clock that was set back"),
        pytest.param({"threads": 2}, 2, id="of other threads"),
        pytest.param({"busy": 0.5}, 1, id="others took more then"),
    ],
)
def test_what_no_longer_holds_is_measured_again(measured, stale, bandwidths):
    row = benched("rand:tiny", **CASE, machine_peaks=machine_peaks(**stale).kept())
    assert (measured["bandwidth"], measured["ops"]) == (bandwidths, 1)
    assert row["machine_peaks"]["measured_s_ago"] < 1 and row["machine_peaks"]["bandwidths"] == [1e10] * bandwidths


def test_a_system_that_tells_no_load_changes_nothing(measured):
    assert machine_peaks(busy=None).is_like(0.9) and machine_peaks(busy=0.9).is_like(None)


def test_what_others_took_is_a_median_of_all_samples():
    def speed(pp, tg):
        return SpeedFigures(samples=Samples(busy_by_others={"pp_tok_s": pp, "tg_tok_s": tg}))

    assert busy_during(speed([0.1, None], [0.3, 0.2])) == 0.2
    assert busy_during(speed([None], [])) is None
