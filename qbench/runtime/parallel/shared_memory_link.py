"""SharedMemoryLink: values travel through memory that the ranks of one host have mapped."""

import importlib
import time
from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from qbench.run.rank_layout import SHM
from qbench.runtime.parallel.link import Link, LinkError

LOOK_S = 0.1  # between two looks at whether a late rank still runs: a file and a question to rank 0


class SharedMemoryLink(Link):
    """Rings in memory that all ranks of a host have mapped; waiting ranks spin, then yield, then nap.

    The memory has no name, so it goes with the last process that maps it.

    memory     uint8, as cpu_kernels.SharedLink wants it
    has_ended  whether a rank has ended, which memory does not show
    """

    name = SHM

    def __init__(
        self, memory: np.ndarray, num_ranks: int, rank: int, timeout_s: float, has_ended: Callable[[int], bool]
    ) -> None:
        self._end = importlib.import_module("cpu_kernels").SharedLink(memory, num_ranks, rank)
        self._timeout_s, self._has_ended = timeout_s, has_ended
        self._look_s = min(LOOK_S, timeout_s)

    def exchange(self, sent: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> None:
        self._end.begin([(rank, x.numpy()) for rank, x in sent], [(rank, x.numpy()) for rank, x in received])
        self._move()

    def add(self, x: np.ndarray, ranks: Sequence[int], rank: int) -> None:
        self._end.begin_sum(ranks, x)
        self._move()

    def _move(self) -> None:
        late = self._end.move(self._look_s)
        deadline = time.monotonic() + self._timeout_s - self._look_s
        while late >= 0:
            if self._has_ended(late):
                raise LinkError(late, is_late=False)
            if time.monotonic() >= deadline:
                raise LinkError(late, is_late=True)
            late = self._end.move(self._look_s)
