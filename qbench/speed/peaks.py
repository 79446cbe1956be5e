"""Peaks of this machine, measured in the same run as the figures that are compared with them."""

from functools import cache

from qbench.measure.host.machine import available_cores, last_level_cache_bytes
from qbench.run.choices import CPU, CUDA
from qbench.speed.units import ARITHMETICS, BF16, CAN_DO, INT16, Unit, strongest
from qbench.words.read import count
from quant.present import present

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


def measure_op_peaks(threads: int, device: str = CPU) -> dict[str, Unit]:
    """The strongest unit for each kind of operands, with this many threads, or on a GPU; of a CPU by the largest rates
    that this process has measured, once more now. A kind is left out if a unit of it has no peak: see `largest_peak`.
    """
    if device == CUDA:
        rates = {key.removesuffix("_ops_s"): rate for key, rate in gpu_peaks().items() if key.endswith("_ops_s")}
        return {arithmetic: Unit(f"{device} {arithmetic}", rate) for arithmetic, rate in rates.items()}
    rates = {arithmetic: largest_peak(arithmetic, threads) for arithmetic in unit_isas()}
    best = {operands: strongest(operands, rates) for operands in CAN_DO}
    return {operands: unit_of(name, rates[name]) for operands, name in best.items() if name is not None}


def strongest_unit(operands: str, threads: int) -> Unit | None:
    """The same for one kind, by earlier rates if there are any; the rate of the unit itself is measured once more."""
    names = [name for name in CAN_DO[operands] if name in unit_isas()]
    best = strongest(operands, {name: _largest.get((name, threads)) or largest_peak(name, threads) for name in names})
    return None if best is None else unit_of(best, largest_peak(best, threads))


def unit_of(arithmetic: str, ops_per_s: float | None) -> Unit:
    return Unit(f"{unit_isas()[arithmetic]} {arithmetic}", present(ops_per_s))


def unit_isas() -> dict[str, str]:
    """Arithmetic -> instruction set, of those that have instructions here; the tables of others end in float32."""
    import cpu_kernels
    from cpu_kernels.linear_float import BF16_PRODUCT_ISAS

    isas = {arithmetic: cpu_kernels.chosen_isa(f"{arithmetic}_peak") for arithmetic in ARITHMETICS}
    if isas[BF16] not in BF16_PRODUCT_ISAS:
        del isas[BF16]
    if isas[INT16] == "scalar":
        del isas[INT16]
    return isas


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
