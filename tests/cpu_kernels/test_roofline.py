import pytest

import cpu_kernels

MEASURES = {
    "read_bandwidth": cpu_kernels.measure_read_bandwidth,
    "int8_peak": cpu_kernels.measure_int8_peak,
    "int16_peak": cpu_kernels.measure_int16_peak,
    "bf16_peak": cpu_kernels.measure_bf16_peak,
    "fp32_peak": cpu_kernels.measure_fp32_peak,
}
# No machine that runs this is outside these by a factor: per thread, bytes/s or operations/s.
PEAKS = [name for name in MEASURES if name.endswith("_peak")]
PLAUSIBLE = {"read_bandwidth": (1e8, 1e12)} | dict.fromkeys(PEAKS, (1e8, 1e14))


@pytest.mark.parametrize("name", MEASURES)
def test_measures_something_plausible(name):
    low, high = PLAUSIBLE[name]
    assert low < MEASURES[name](1) < high


@pytest.mark.parametrize("name", PEAKS)
@pytest.mark.parametrize("isa", ["scalar", "avx2"])
def test_runs_under_a_forced_isa(monkeypatch, name, isa):
    if isa not in cpu_kernels.features():
        pytest.skip(f"this machine has no {isa}")
    monkeypatch.setenv("QBENCH_ISA", isa)
    assert cpu_kernels.chosen_isa(name) == isa
    low, high = PLAUSIBLE[name]
    assert low < MEASURES[name](1) < high


@pytest.mark.parametrize("name", MEASURES)
def test_bad_threads(name):
    with pytest.raises(ValueError, match="got 0, expected 1 to 1024"):
        MEASURES[name](0)
