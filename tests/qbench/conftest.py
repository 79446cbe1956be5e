"""The machine's peaks are measured once per run: each takes about 0.5 s."""

from functools import cache

import pytest

import cpu_kernels

MEASURED = ("read_bandwidth", "fp32_peak", "int8_peak", "int16_peak", "bf16_peak")


@pytest.fixture(scope="package", autouse=True)
def machine_peaks_measured_once():
    """Peaks of each number of threads, as they were when first asked for; tests of the measuring itself are
    elsewhere.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in (f"measure_{what}" for what in MEASURED):
            patch.setattr(cpu_kernels, name, cache(getattr(cpu_kernels, name)))
        yield
