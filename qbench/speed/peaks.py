"""Peaks of this machine, measured in the same run as the figures that are compared with them."""

from functools import cache

from qbench.devices import CPU, CUDA
from qbench.measure.host.machine import available_cores, last_level_cache_bytes
from qbench.phrases import count

ARITHMETICS = ("fp32", "int8", "int16", "bf16")
ENOUGH_CORES = 0.9  # share of the threads' cores that they had in the fastest run: a peak is at most a tenth too low
TRIES = 5  # of 0.3 s, until the threads had their cores once


# Seconds of the read in one round: thirty windows of 64 MB at 40 GB/s, of which the fastest counts.
ROUND_READ_S = 0.05


def measure_bandwidth(threads: int, device: str = CPU) -> float:
    """Bytes per second that this many threads read from memory now; of a GPU, that its memory moves."""
    import cpu_kernels

    if device == CUDA:
        return gpu_peaks()["bytes_s"]
    return cpu_kernels.measure_read_bandwidth(threads, ROUND_READ_S)


def last_cache_bytes(device: str = CPU) -> int:
    """Bytes of the cache before the memory; 0 if the system does not say."""
    if device == CUDA:
        import torch  # slow, and not needed for a processor's cache

        return torch.cuda.get_device_properties(0).L2_cache_size
    return last_level_cache_bytes()


def measure_op_peaks(threads: int, device: str = CPU) -> dict[str, float]:
    """Peak operations a second of the arithmetics that kernels use, with this many threads, or on a GPU; of a CPU the
    largest that this process has measured, once more now. Arithmetics without a peak are left out: see `largest_peak`.
    """
    if device == CUDA:
        found = gpu_peaks()
        return {name.removesuffix("_ops_s"): rate for name, rate in found.items() if name.endswith("_ops_s")}
    found = {arithmetic: largest_peak(arithmetic, threads) for arithmetic in ARITHMETICS}
    return {arithmetic: rate for arithmetic, rate in found.items() if rate is not None}


@cache
def gpu_peaks() -> dict[str, float]:
    """As gpu_kernels measures them, once per process; their memory is freed."""
    import torch

    from gpu_kernels.proof.machine_peaks import measure_machine_peaks

    found = measure_machine_peaks("cuda")
    torch.cuda.empty_cache()
    return found


_largest: dict[tuple[str, int], float | None] = {}


def largest_peak(arithmetic: str, threads: int) -> float | None:
    """Largest of all measurements of this process in which the threads had their cores, with one more now.

    Who shares the cores can halve a peak for a second (two-core VM: bf16 0.24 and 0.47 TFLOPS, one after the other),
    and nothing makes it larger than it is. If others hold the cores all the time, two threads reach the peak of one:
    that is no peak. The first call tries several times, since there is nothing yet to fall back to.

    returns   None if the threads never had their cores
    """
    key = arithmetic, threads
    for _ in range(1 if key in _largest else TRIES):
        found, before = measure_peak(arithmetic, threads), _largest.get(key)
        _largest[key] = before if found is None else max(before or 0.0, found)
        if found is not None:
            break
    return _largest[key]


def measure_peak(arithmetic: str, threads: int) -> float | None:
    """Operations per second at most, from registers, measured now; None if the threads did not have their cores."""
    rate, cores = timed_peak(arithmetic, threads)
    return rate if cores >= ENOUGH_CORES * min(threads, available_cores()) else None


def timed_peak(arithmetic: str, threads: int) -> tuple[float, float]:
    """Operations per second in the fastest run now, and the cores that the threads had."""
    import cpu_kernels

    return {
        "fp32": cpu_kernels.measure_fp32_peak,
        "int8": cpu_kernels.measure_int8_peak,
        "int16": cpu_kernels.measure_int16_peak,
        "bf16": cpu_kernels.measure_bf16_peak,
    }[arithmetic](threads)


def unmeasured_warning(threads: int) -> str:
    """One line for the user if a peak is missing."""
    return (
        "warning: no share of the roofline: while the peaks were measured, other programs kept the cores of "
        f"{count(threads, 'thread')}"
    )
