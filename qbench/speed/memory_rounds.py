"""Whether the bandwidth changes with the place of memory or with time: the same weights, and new ones, in turns.

Two speeds of memory of its own (colours of pages, nodes) differ between `new` rounds alone. If `kept` rounds differ as
much, the same pages are read at two speeds, and the cause is outside of this process: other guests, or the host.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil

import cpu_kernels
from qbench.measure.host.placement import huge_page_share, placement
from quant.json_data import JsonData

ROWS, FEATURES, BLOCK_BYTES, BLOCK_WEIGHTS = 4096, 61440, 34, 32  # 267 MB of Q8_0: 8 times an L3 of 32 MiB
PASSES = 4  # a round's bandwidth is the best of so many


@dataclass(frozen=True, slots=True)
class MemoryRounds(JsonData):
    """Bytes per second of one thread: of weights made once, and of a new copy for each round.

    stolen  share of this machine's time that the host gave to others meanwhile; None: unknown
    """

    kept: list[float]
    new: list[float]
    huge_page_share: float | None
    numa_nodes: list[int] | None
    stolen: float | None


def memory_rounds(num_rounds: int) -> MemoryRounds:
    threads, before = cpu_kernels.get_num_threads(), psutil.cpu_times()
    kept, new = list[float](), list[float]()
    cpu_kernels.set_num_threads(1)
    try:
        weight = _weight()
        for _ in range(num_rounds):
            kept.append(_bandwidth(weight))
            new.append(_bandwidth(_weight()))
        huge = huge_page_share()
    finally:
        cpu_kernels.set_num_threads(threads)
    return MemoryRounds(kept, new, huge, placement().numa_nodes, stolen_share(before, psutil.cpu_times()))


def stolen_share(before: Any, after: Any) -> float | None:
    """before, after   of `psutil.cpu_times`"""
    if not hasattr(after, "steal"):
        return None
    total = sum(after) - sum(before)
    return (after.steal - before.steal) / total if total > 0 else None


def _weight() -> Any:
    blocks = np.ones((ROWS, FEATURES // BLOCK_WEIGHTS * BLOCK_BYTES), np.uint8)
    return cpu_kernels.PackedLinear("q8_0", {"blocks": blocks}, (ROWS, FEATURES))


def _bandwidth(weight: Any) -> float:
    """By processor time, so that other programs' turns on the core do not count."""
    x, seconds = np.zeros((1, FEATURES), np.float32), []
    for _ in range(1 + PASSES):
        start = time.thread_time()
        weight.matmul(x, path="direct")
        seconds.append(time.thread_time() - start)
    return ROWS * FEATURES // BLOCK_WEIGHTS * BLOCK_BYTES / min(seconds[1:])
