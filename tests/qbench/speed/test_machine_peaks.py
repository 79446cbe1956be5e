"""Machine peaks: when a case may take those of an earlier one, and when it measures again."""

import mmap
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.measuring import benched

from qbench.measure.host.memory import peak_rss_bytes
from qbench.measure.speed_figures import Samples, SpeedFigures
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork
from qbench.speed import bench as bench_module
from qbench.speed import machine_peaks as peaks_module
from qbench.speed.bench import bench_cases
from qbench.speed.machine_peaks import MOST_AGE_S, CurrentPeaks, busy_during
from qbench.speed.units import Unit

CASE = {"pp": 8, "tg": 4, "repetitions": 2, "threads": 1}
RATES = {"fp32": 1e11, "int8": 4e11, "bf16": 2e11}


def machine_peaks(threads: int = 1, busy: float | None = 0.0, age: float = 5.0) -> CurrentPeaks:
    return CurrentPeaks(threads, RATES, busy, time.time() - age, units={name: f"avx9 {name}" for name in RATES})


@pytest.fixture
def measured(monkeypatch):
    """How often the machine was measured, and the share of other processes."""
    found = {"bandwidth": 0, "ops": 0, "busy": 0.0}

    now = 0.0

    def count(what, value):
        nonlocal now
        now += 1.0  # second, for each
        found[what] += 1
        return value

    monkeypatch.setattr(bench_module, "measure_bandwidth", lambda threads, device: count("bandwidth", 1e10))
    ops = {name: Unit(f"avx9 {name}", rate) for name, rate in RATES.items()}
    monkeypatch.setattr(peaks_module, "measure_op_peaks", lambda threads, device: count("ops", ops))
    for module in (bench_module, peaks_module):
        monkeypatch.setattr(module, "busy_during", lambda speed: found["busy"])
    monkeypatch.setattr(bench_module, "time", SimpleNamespace(perf_counter=lambda: now))
    return found


def test_a_case_alone_measures_the_bandwidth_in_each_round(measured, monkeypatch):
    for module in (bench_module, peaks_module):
        monkeypatch.setattr(module, "last_cache_bytes", lambda device: 0)
    began = time.time()
    row = benched("rand:tiny", **CASE)
    rounds = len(row["roofline"]["bandwidths_bytes_per_s"])
    assert rounds == 3, "one of warm-up and two that count"
    assert (measured["bandwidth"], measured["ops"]) == (rounds, 1)
    assert row["machine_peaks"]["measured_s_ago"] <= time.time() - began
    assert row["machine_peaks_seconds"] == rounds + 1.0
    assert row["roofline"]["bandwidth_of"] == "round" and row["roofline"]["tg"] > 0


def test_the_bandwidth_does_not_bound_operands_in_a_cache(measured, monkeypatch):
    for module in (bench_module, peaks_module):
        monkeypatch.setattr(module, "last_cache_bytes", lambda device: 1 << 40)
    row = benched("rand:tiny", **CASE)
    assert measured["bandwidth"] == 0 and row["roofline"]["bandwidths_bytes_per_s"] == []
    assert row["roofline"]["tg"] is None and row["roofline"]["pp"] > 0


def test_the_buffer_of_the_probe_is_not_in_the_peak(monkeypatch):
    """64 MB that are taken and given back while the bandwidth is measured."""
    size, page = 64 << 20, b"x" * 4096

    def measured(threads, device):
        with mmap.mmap(-1, size) as buffer:  # malloc may keep freed memory
            for _ in range(size // len(page)):
                buffer.write(page)
        return float(size)

    monkeypatch.setattr(bench_module, "measure_bandwidth", measured)
    probe = bench_module.BandwidthProbe(RunOptions(threads=1))
    assert bench_module.reset_peak_rss()
    before = peak_rss_bytes()
    assert probe() == size
    assert max(probe.peak_bytes, peak_rss_bytes()) < before + size / 2


def test_a_row_of_fewer_threads_is_compared_only_with_their_bandwidth(measured, monkeypatch):
    monkeypatch.setattr(bench_module, "measure_bandwidth", lambda threads, device: threads * 1e10)
    monkeypatch.setattr(bench_module, "last_cache_bytes", lambda device: 0)
    case = SpeedWork(pp=8, tg=4, repetitions=2)
    rows = list(row.to_json() for row in bench_cases("rand:tiny", [case, case], threads=(2, 1)))
    assert [row["roofline"]["bandwidth_bytes_per_s"] for row in rows] == [2e10, 2e10, 1e10, 1e10]


def test_young_peaks_are_taken_and_their_age_is_shown(measured):
    row = benched("rand:tiny", **CASE, machine_peaks=machine_peaks().kept())
    assert measured["ops"] == 0
    assert 5 <= row["machine_peaks"]["measured_s_ago"] < MOST_AGE_S
    again = benched("rand:tiny", **CASE, machine_peaks=row["machine_peaks"])
    assert again["machine_peaks"]["time"] == row["machine_peaks"]["time"]


@pytest.mark.parametrize(
    "stale",
    [
        pytest.param({"age": MOST_AGE_S + 1}, id="old"),
        pytest.param({"age": -60}, id="from a clock that was set back"),
        pytest.param({"threads": 2}, id="of other threads"),
        pytest.param({"busy": 0.5}, id="others took more then"),
    ],
)
def test_outdated_peaks_are_measured_again(measured, stale):
    began = time.time()
    row = benched("rand:tiny", **CASE, machine_peaks=machine_peaks(**stale).kept())
    assert measured["ops"] == 1 and row["machine_peaks"]["measured_s_ago"] <= time.time() - began


def test_peaks_without_units_are_measured_again(measured):
    """Those of older rows are by the arithmetic that ran."""
    row = benched("rand:tiny", **CASE, machine_peaks=replace(machine_peaks().kept(), units=None))
    assert measured["ops"] == 1 and row["roofline"]["units"] == {"bf16": "avx9 bf16", "fp32": "avx9 fp32"}


def test_a_system_without_a_load_figure_changes_nothing(measured):
    assert machine_peaks(busy=None).is_like(0.9) and machine_peaks(busy=0.9).is_like(None)


def test_the_share_of_other_processes_is_a_median_of_all_samples():
    def speed(pp, tg):
        return SpeedFigures(samples=Samples(busy_by_others={"pp_tok_s": pp, "tg_tok_s": tg}))

    assert busy_during(speed([0.1, None], [0.3, 0.2])) == 0.2
    assert busy_during(speed([None], [])) is None
