"""How many threads a run may ask for."""

from quant.errors import InputError

MAX_THREADS = 1024  # as the thread pool of cpu_kernels; far beyond it torch crashes


def check_threads(threads: int | None, where: str = "") -> None:
    """raises InputError unless `threads` is None or a number that torch and the kernels can run with"""
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise InputError(f"{where}threads is {threads}, expected 1 to {MAX_THREADS}")
