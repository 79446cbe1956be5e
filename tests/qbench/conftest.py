"""The machine's peaks are measured once per run, as if nobody else had its cores: each takes about 0.5 s."""

from collections.abc import Callable
from functools import cache

import pytest

import cpu_kernels

PEAKS = ("fp32_peak", "int8_peak", "int16_peak", "bf16_peak")


def alone(measure: Callable[[int], tuple[float, float]]) -> Callable[[int], tuple[float, float]]:
    """The rate as it is; each thread had a core."""
    return cache(lambda threads: (measure(threads)[0], float(threads)))


@pytest.fixture(scope="package", autouse=True)
def machine_peaks_measured_once():
    """Peaks of each number of threads, as they were when first asked for; tests of the measuring itself are
    elsewhere.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_kernels, "measure_read_bandwidth", cache(cpu_kernels.measure_read_bandwidth))
        for name in (f"measure_{what}" for what in PEAKS):
            patch.setattr(cpu_kernels, name, alone(getattr(cpu_kernels, name)))
        yield
