"""Two ways to count seconds."""

import time
from collections.abc import Callable

from quant.errors import InputError

Clock = Callable[[], float]  # seconds since some moment
# "cpu" is the time that this process gets: others hardly change it if one thread does all the work.
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


def check_clock(clock: str, threads: int) -> None:
    """raises InputError where processor time is asked for more than one thread, which wait for each other"""
    if clock == "cpu" and threads != 1:
        raise InputError(f"{threads} threads also take time while they wait; count it with --threads 1")
