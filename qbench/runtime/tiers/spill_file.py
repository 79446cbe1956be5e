"""`SpillFile`: memory on a disk that ends with the process, in slots of one size."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from qbench.runtime.tiers.aligned import aligned_buffer, padded
from qbench.runtime.tiers.many_reads import ManyReads
from qbench.runtime.tiers.read_ahead import ReadAhead
from quant.errors import InputError

RUN_BYTES = 1 << 20  # at once: larger reads gain little bandwidth on today's disks


class SpillFile:
    """A file without a name, which the system removes when the process ends, however it ends.

    One thread at a time reads and writes. Direct I/O if the file system has it: pages that are spilled for want of
    memory would fill the page cache otherwise.

    descriptor  of the open file
    stride      bytes of a slot in the file
    folder      None: that of temporary files
    slot_bytes  of each slot
    run_slots   neighbours that are read or written at once, at most
    max_bytes   of all slots
    raises      InputError for a folder that takes no file
    """

    def __init__(self, folder: Path | None, slot_bytes: int, max_bytes: int) -> None:
        where = Path(tempfile.gettempdir()) if folder is None else folder
        self.slot_bytes, self.max_bytes = slot_bytes, max_bytes
        self.num_slots = max_bytes // padded(slot_bytes)
        self.stride, self._num_used, self._free = padded(slot_bytes), 0, []
        self.run_slots = max(1, RUN_BYTES // self.stride)
        self._buffer = aligned_buffer(self.run_slots * self.stride)
        try:
            self.descriptor = _unnamed(where)
        except OSError as error:
            raise InputError(f"{where}: cannot make a file for keys and values: {error.strerror}") from error
        self._reads = ManyReads(self.descriptor, self._buffer)

    def allocate(self) -> int | None:
        """A free slot; None if all are taken"""
        if self._free:
            return self._free.pop()
        if self._num_used == self.num_slots:
            return None
        self._num_used += 1
        return self._num_used - 1

    def release(self, slot: int) -> None:
        self._free.append(slot)

    def write(self, slot: int, data: np.ndarray) -> None:
        """data [slot_bytes] uint8; raises OSError for a full disk"""
        self._buffer[: self.slot_bytes] = data
        self.write_run(slot, 1)

    def read(self, slot: int) -> np.ndarray:
        """[slot_bytes] uint8, which the next call overwrites"""
        return self.read_run(slot, 1)[0, : self.slot_bytes]

    def buffer(self, count: int) -> np.ndarray:
        """[count, slot_bytes or more] uint8 for `write_run`; count is at most run_slots"""
        return self._buffer[: count * self.stride].reshape(count, self.stride)

    def write_run(self, first: int, count: int) -> None:
        """Write `buffer` to this slot and those after it; raises OSError for a full disk"""
        done, start, size = 0, first * self.stride, count * self.stride
        while done < size:
            done += os.pwritev(self.descriptor, [self._buffer[done:size].data], start + done)

    def read_run(self, first: int, count: int) -> np.ndarray:
        """`buffer` with the bytes of this slot and those after it, which the next call overwrites"""
        return self.read_slots(range(first, first + count))

    def read_slots(self, slots: Sequence[int]) -> np.ndarray:
        """`buffer` with these slots, which the next call overwrites; neighbours are one read.

        slots    ascending, no more than run_slots
        raises   OSError
        """
        starts, sizes, end = [], [], -1
        for slot in slots:
            if slot == end:
                sizes[-1] += self.stride
            else:
                starts.append(slot * self.stride)
                sizes.append(self.stride)
            end = slot + 1
        self._reads.read(starts, sizes)
        return self.buffer(len(slots))

    @property
    def reads_many(self) -> bool:
        """Whether several reads can be in flight"""
        return self._reads.in_flight > 1

    def read_ahead(self) -> ReadAhead:
        return ReadAhead(self.descriptor, self.stride)

    def close(self) -> None:
        os.close(self.descriptor)


def _unnamed(folder: Path) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
    except OSError:  # a file system without unnamed files or without direct I/O
        descriptor, name = tempfile.mkstemp(dir=folder)
        os.unlink(name)
        return descriptor
