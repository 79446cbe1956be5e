"""Ranks: values between this rank and the others of one model."""

import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from qbench.run.rank_layout import RankLayout
from qbench.runtime.parallel.link import Link, LinkError
from qbench.runtime.parallel.meeting import Meeting
from qbench.runtime.parallel.traffic import Traffic


class Ranks:
    """Values travel as contiguous float32 from rank to rank, so that every byte is counted and a failure has a name.

    meeting  of all ranks
    link     carries the values
    traffic  counts of this rank
    before_parting  called before this rank parts from the others; None: nothing is
    """

    before_parting: Callable[[], None] | None = None

    def __init__(self, layout: RankLayout, meeting: Meeting, link: Link) -> None:
        self.meeting, self.link = meeting, link
        self.rank = meeting.rank
        self.traffic = Traffic()
        self.divide(layout)

    def divide(self, layout: RankLayout) -> None:
        """Take another layout of as many ranks, for the models that are loaded from now on."""
        self.layout, self.lane, self.stage = layout, layout.lane(self.rank), layout.stage(self.rank)

    def lanes(self) -> list[int]:
        """Ranks of this stage, in the order of their lanes."""
        return [self.layout.rank(self.stage, lane) for lane in range(self.layout.num_lanes)]

    def gather(self, x: Tensor, widths: Sequence[int] | None = None) -> list[Tensor]:
        """x [..., K] of every lane of this stage, in their order. widths: K of each lane; None: all have that of x"""
        lanes = self.lanes()
        x = x.contiguous()
        widths = widths or [x.shape[-1]] * len(lanes)
        parts = [
            x if rank == self.rank else torch.empty(*x.shape[:-1], width)
            for rank, width in zip(lanes, widths, strict=True)
        ]
        others = [(rank, part) for rank, part in zip(lanes, parts, strict=True) if rank != self.rank]
        self._exchange([(rank, x) for rank, _ in others], others)
        return parts

    def add(self, x: np.ndarray) -> None:
        """x becomes the sum over the lanes of this stage: float32, added in the order of the lanes.

        x  contiguous
        """
        lanes = self.lanes()
        self._counted(lambda: self.link.add(x, lanes, self.rank), [x.nbytes] * (len(lanes) - 1))

    def largest(self, x: Tensor) -> Tensor:
        """The largest value over the lanes of this stage, entry by entry."""
        return torch.stack(self.gather(x)).amax(0)

    def of_first(self, value: float) -> float:
        """The value of rank 0, as float32, on every rank. Not counted."""
        x, others = torch.tensor([value], dtype=torch.float32), range(1, self.layout.num_ranks)
        sent, received = ([], [(0, x)]) if self.rank else ([(rank, x) for rank in others], [])
        self._moved(lambda: self.link.exchange(sent, received))
        return float(x)

    def send(self, x: Tensor, ranks: Sequence[int]) -> None:
        x = x.contiguous()
        self._exchange([(rank, x) for rank in ranks], [])

    def pass_on(self, sent: Tensor | None, to: int, received: Tensor | None = None, source: int | None = None) -> None:
        """Send to one rank and receive from another at the same time; None: nothing. received: is filled"""
        sends = [] if sent is None else [(to, sent.contiguous())]
        receipts = [] if received is None or source is None else [(source, received)]
        if sends or receipts:
            self._exchange(sends, receipts)

    def trade(self, sent: Sequence[Tensor], num_received: Sequence[int]) -> list[Tensor]:
        """A tensor of its own to each lane of this stage; nothing travels for one without rows.

        sent          for each lane, float32 [n, K]
        num_received  rows that come from each lane
        returns       [n, K] of each lane
        """
        lanes, width = self.lanes(), sent[0].shape[1]
        parts = [
            x if rank == self.rank else torch.empty(count, width)
            for rank, x, count in zip(lanes, sent, num_received, strict=True)
        ]
        self._exchange(
            [(rank, x.contiguous()) for rank, x in zip(lanes, sent, strict=True) if rank != self.rank and len(x)],
            [(rank, part) for rank, part in zip(lanes, parts, strict=True) if rank != self.rank and len(part)],
        )
        return parts

    def receive(self, shape: Sequence[int], rank: int) -> Tensor:
        x = torch.empty(*shape)
        self._exchange([], [(rank, x)])
        return x

    def _exchange(self, sent: Sequence[tuple[int, Tensor]], received: Sequence[tuple[int, Tensor]]) -> None:
        self._counted(lambda: self.link.exchange(sent, received), [x.nbytes for _, x in sent])

    def _counted(self, transfer: Callable[[], None], sent: Iterable[int]) -> None:
        """Run a transfer that sends messages of so many bytes. raises RankError for a rank that ended or is late"""
        start = time.perf_counter()
        self._moved(transfer)
        for num_bytes in sent:
            self.traffic.sent(num_bytes)
        self.traffic.seconds += time.perf_counter() - start

    def _moved(self, transfer: Callable[[], None]) -> None:
        try:
            transfer()
        except LinkError as error:
            raise self.meeting.error(error.rank, error.is_late) from error
