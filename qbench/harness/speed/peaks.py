"""What this machine can do at most, measured in the same run as what is compared with it."""

from functools import cache

ARITHMETICS = ("fp32", "int8", "int16", "bf16")


def measure_bandwidth(threads: int) -> float:
    """Bytes a second that this many threads read from memory now."""
    import cpu_kernels

    return cpu_kernels.measure_read_bandwidth(threads)


@cache
def measure_op_peaks(threads: int) -> dict[str, float]:
    """Peak operations a second of the arithmetics that kernels use, with this many threads."""
    return {arithmetic: measure_peak(arithmetic, threads) for arithmetic in ARITHMETICS}


def measure_peak(arithmetic: str, threads: int) -> float:
    """Operations per second at most, from registers, measured now."""
    import cpu_kernels

    return {
        "fp32": cpu_kernels.measure_fp32_peak,
        "int8": cpu_kernels.measure_int8_peak,
        "int16": cpu_kernels.measure_int16_peak,
        "bf16": cpu_kernels.measure_bf16_peak,
    }[arithmetic](threads)
