"""Links: how the values of one rank reach another, by gloo's sockets or by memory that the ranks of a host share."""

import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from qbench.rank_layout import GLOO, SHM

LOOK_S = 0.1  # between two looks at whether a late rank still runs: a file and a question to rank 0


class LinkError(Exception):
    """A transfer failed. rank: the other end"""

    def __init__(self, rank: int, is_late: bool) -> None:
        super().__init__(rank, is_late)
        self.rank, self.is_late = rank, is_late


class Link(ABC):
    """name: one of qbench.rank_layout.LINKS, but not "auto" """

    name: ClassVar[str]

    @abstractmethod
    def exchange(self, sent: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> None:
        """Send and receive at the same time.

        sent, received  (rank, contiguous float32), each rank once in each
        raises          LinkError for a rank that ended or is late
        """

    def add(self, x: np.ndarray, ranks: Sequence[int], rank: int) -> None:
        """x becomes the sum over the ranks, added in their order, so equal on all of them.

        x      float32, contiguous
        rank   this one
        raises LinkError
        """
        mine = torch.from_numpy(x)
        parts = {other: mine if other == rank else torch.empty_like(mine) for other in ranks}
        self.exchange(
            [(other, mine) for other in ranks if other != rank],
            [(other, part) for other, part in parts.items() if other != rank],
        )
        first, *rest = parts.values()
        total = first.clone()
        for part in rest:
            total += part
        mine.copy_(total)

    def close(self) -> None:  # noqa: B027  most have nothing to close
        """Part from the other ranks."""


class GlooLink(Link):
    """Messages of torch.distributed over sockets; ranks may be on several hosts."""

    name = GLOO

    def __init__(self, store: Any, rank: int, num_ranks: int, timeout_s: float) -> None:
        import torch.distributed as dist  # slow, and of no use to one rank

        self._dist, self._timeout = dist, timedelta(seconds=timeout_s)
        # Gloo names an interface after the host's name, which need not be one that others reach.
        dist.init_process_group("gloo", store=store, rank=rank, world_size=num_ranks, timeout=self._timeout)

    def exchange(self, sent: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> None:
        sends = [(rank, self._call(rank, self._dist.isend, x, rank)) for rank, x in sent]
        receipts = [(rank, self._call(rank, self._dist.irecv, x, rank)) for rank, x in received]
        for rank, work in (*receipts, *sends):
            self._call(rank, work.wait, self._timeout)

    def _call(self, rank: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """function(*arguments), whose failure is that of the other rank"""
        try:
            return function(*arguments)
        except RuntimeError as error:
            said = str(error).lower()
            raise LinkError(rank, "timed out" in said or "timeout" in said) from error

    def close(self) -> None:
        self._dist.destroy_process_group()


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
