import os

import pytest

import cpu_kernels

PEAKS = {
    "int8_peak": cpu_kernels.measure_int8_peak,
    "int16_peak": cpu_kernels.measure_int16_peak,
    "bf16_peak": cpu_kernels.measure_bf16_peak,
    "fp32_peak": cpu_kernels.measure_fp32_peak,
}
MEASURES = {"read_bandwidth": cpu_kernels.measure_read_bandwidth} | PEAKS
# No machine that runs this is outside these by a factor: operations per second of a thread.
LOW, HIGH = 1e8, 1e14


def test_the_bandwidth_is_plausible():
    assert 1e8 < cpu_kernels.measure_read_bandwidth(1) < 1e12


@pytest.mark.parametrize("name", PEAKS)
def test_measures_something_plausible(name):
    rate, cores = PEAKS[name](1)
    assert LOW < rate < HIGH and 0 < cores < 1.01


@pytest.mark.parametrize("name", PEAKS)
@pytest.mark.parametrize("isa", ["scalar", "avx2"])
def test_runs_under_a_forced_isa(monkeypatch, name, isa):
    if isa not in cpu_kernels.features():
        pytest.skip(f"this machine has no {isa}")
    monkeypatch.setenv("QBENCH_ISA", isa)
    assert cpu_kernels.chosen_isa(name) == isa
    assert LOW < PEAKS[name](1)[0] < HIGH


def test_two_threads_that_share_a_core_are_seen():
    """The clock of the two threads, not of the machine: whatever else runs, they cannot have more than that core."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        _, cores = PEAKS["fp32_peak"](2)
    finally:
        os.sched_setaffinity(0, allowed)
    assert 0 < cores < 1.1


@pytest.mark.parametrize("name", MEASURES)
def test_bad_threads(name):
    with pytest.raises(ValueError, match="got 0, expected 1 to 1024"):
        MEASURES[name](0)
