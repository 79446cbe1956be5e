"""`ReadAhead`: slots of a spill file that are on their way while the caller computes."""

from collections.abc import Sequence

import numpy as np

from qbench.runtime.tiers.aligned import aligned_buffer
from qbench.runtime.tiers.many_reads import ManyReads

MOST_SLOTS = 32  # as many as a step of a small model brings; each read takes 5 to 10 us of the processor
MOST_BYTES = 1 << 20  # of memory beyond that of keys and values


class ReadAhead:
    """Begins reads of slots that may be asked for next, into memory of its own.

    most        slots at once; 0 if the system does not take several reads at once
    num_unused  slots that were read and not taken
    descriptor  of the file
    stride      bytes of a slot in the file
    """

    def __init__(self, descriptor: int, stride: int) -> None:
        self._stride, self.num_unused = stride, 0
        num_rows = min(MOST_SLOTS, MOST_BYTES // stride)
        self._buffer = aligned_buffer(num_rows * stride)
        self._rows = self._buffer.reshape(num_rows, stride)
        self._reads = ManyReads(descriptor, self._buffer)
        self.most = num_rows if self._reads.in_flight > 1 else 0
        self._places: dict[int, int] = {}  # slot -> its row
        self._coming: set[int] = set()  # rows

    def begin(self, slots: Sequence[int]) -> None:
        """Read the first of these slots, up to `most`; those that were not taken are forgotten.

        raises   OSError
        """
        self.forget()
        slots = slots[: self.most]
        if not slots:
            return
        rows = range(len(slots))
        self._places, self._coming = dict(zip(slots, rows, strict=True)), set(rows)
        stride = self._stride
        self._reads.begin([slot * stride for slot in slots], [stride] * len(slots), [row * stride for row in rows])

    def take(self, slots: Sequence[int]) -> tuple[list[bool], np.ndarray]:
        """Which of the slots [n] were begun, and the bytes of those [m, stride] uint8, which the next call overwrites.

        A slot that could not be read counts as not begun.
        """
        wanted = {self._places[slot] for slot in slots if slot in self._places}
        while not self._coming.isdisjoint(wanted):
            self._collect(1)
        rows = [self._places.pop(slot, None) for slot in slots]
        return [row is not None for row in rows], self._rows[[row for row in rows if row is not None]]

    def forget(self, slots: Sequence[int] | None = None) -> None:
        """Drop these slots, whose bytes in the file change; None: all, when nothing is in flight any more."""
        if slots is not None:
            for slot in slots:
                self.num_unused += self._places.pop(slot, None) is not None
            return
        while self._coming:
            self._collect(len(self._coming))
        self.num_unused += len(self._places)
        self._places.clear()

    def _collect(self, least: int) -> None:
        ended = self._reads.finish(least)
        self._coming.difference_update(row for row, _ in ended)
        failed = {row for row, problem in ended if problem}
        if failed:
            self._places = {slot: row for slot, row in self._places.items() if row not in failed}
