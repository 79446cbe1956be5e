"""What this machine can do at most, measured in the same run as what is compared with it."""

import time
from collections.abc import Sequence
from functools import cache

import torch

from qbench.harness.speed.roofline import Peaks

BF16_SIZE = 1024  # three matrices of 2 MB: larger than the inner caches, 2 * 1024**3 operations or about 5 ms
BF16_REPETITIONS = 5
ARITHMETICS = ("fp32", "int8", "bf16")


def measure_bandwidth(threads: int) -> float:
    """Bytes a second that this many threads read from memory now."""
    import cpu_kernels

    return cpu_kernels.measure_read_bandwidth(threads)


def peaks_of(bandwidths: Sequence[float], threads: int) -> Peaks:
    """The bound of what was measured between these: the larger, for others may have been at work during one of them."""
    return Peaks(max(bandwidths), measure_op_peaks(threads))


@cache
def measure_op_peaks(threads: int) -> dict[str, float]:
    """Peak operations a second of the arithmetics that kernels use, with this many threads."""
    return {arithmetic: measure_peak(arithmetic, threads) for arithmetic in ARITHMETICS}


def measure_peak(arithmetic: str, threads: int) -> float:
    """Operations per second at most, measured now."""
    import cpu_kernels

    if arithmetic == "bf16":
        return _bf16_matmul()
    return {"fp32": cpu_kernels.measure_fp32_peak, "int8": cpu_kernels.measure_int8_peak}[arithmetic](threads)


def _bf16_matmul() -> float:
    """Operations per second of torch's own bf16 product at a size that suits it: a little below the peak."""
    a = torch.ones(BF16_SIZE, BF16_SIZE, dtype=torch.bfloat16)
    a @ a  # warm-up: oneDNN builds its kernel on the first call
    best = float("inf")
    for _ in range(BF16_REPETITIONS):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * BF16_SIZE**3 / best
