"""Link: how the values of one rank reach another."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor


class LinkError(Exception):
    """A transfer failed. rank: the other end"""

    def __init__(self, rank: int, is_late: bool) -> None:
        super().__init__(rank, is_late)
        self.rank, self.is_late = rank, is_late


class Link(ABC):
    """name: one of qbench.run.rank_layout.LINKS, but not "auto" """

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
