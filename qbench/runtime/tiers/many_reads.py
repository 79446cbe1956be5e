"""`ManyReads`: several reads of a file in flight at once, by one thread.

A small read takes 50 to 100 us on a virtual disk, of which the processor works 10. With all reads of a layer in flight
a step waits about once per layer. Linux takes and returns them by two system calls (io_submit, io_getevents), which
need no thread and no library. A system without them reads one by one.
"""

import ctypes
import errno
import os
import platform
import weakref
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from qbench.runtime.tiers.aligned import is_direct, read_at

# Numbers of io_setup, io_destroy, io_getevents and io_submit by machine: include/uapi/asm-generic/unistd.h
CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
MOST_IN_FLIGHT = 64  # more gain nothing: the virtual disk's own queue is shorter

# struct iocb and struct io_event: include/uapi/linux/aio_abi.h, little-endian
IOCB = np.dtype(
    [("data", "u8"), ("key", "u4"), ("rw_flags", "i4"), ("opcode", "u2"), ("priority", "i2"), ("fd", "u4"),
     ("buffer", "u8"), ("size", "u8"), ("offset", "i8"), ("reserved", "u8"), ("flags", "u4"), ("event_fd", "u4")]
)  # fmt: skip
EVENT = np.dtype([("data", "u8"), ("request", "u8"), ("result", "i8"), ("result2", "i8")])
assert IOCB.itemsize == 64 and EVENT.itemsize == 32
PREAD = 0  # IOCB_CMD_PREAD
SYSCALL = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 6, use_errno=True)


class ManyReads:
    """Reads into one buffer.

    in_flight   most reads at once; 1 if the system does not take several
    num_left    reads that have begun and not ended
    descriptor  of an open file; reads through the page cache are not in flight together
    buffer      [size] uint8
    """

    def __init__(self, descriptor: int, buffer: np.ndarray) -> None:
        self._descriptor, self._buffer = descriptor, buffer
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._syscall = SYSCALL(("syscall", self._libc))  # knows the types of its arguments
        self._calls = CALLS.get(platform.machine()) if is_direct(descriptor) else None
        self._context = self._set_up()
        self.in_flight = MOST_IN_FLIGHT if self._context else 1
        self.num_left = 0
        self._sizes: Sequence[int] = []
        self._requests = np.zeros(MOST_IN_FLIGHT, dtype=IOCB)
        self._requests["opcode"], self._requests["fd"] = PREAD, descriptor
        first, size = self._requests.ctypes.data, IOCB.itemsize
        self._pointers = np.arange(first, first + MOST_IN_FLIGHT * size, size, dtype=np.uint64)
        self._events = np.zeros(MOST_IN_FLIGHT, dtype=EVENT)
        arrays = (buffer, self._pointers, self._events)
        self._first, self._first_pointer, self._first_event = (array.ctypes.data for array in arrays)

    def read(self, starts: Sequence[int], sizes: Sequence[int]) -> None:
        """Fill the buffer from its start with these parts of the file, one behind the other.

        raises   OSError
        """
        places = [0, *accumulate(sizes)]
        for first in range(0, len(starts), self.in_flight):
            some = slice(first, first + self.in_flight)
            self._read(starts[some], sizes[some], places[some])

    def begin(self, starts: Sequence[int], sizes: Sequence[int], places: Sequence[int]) -> None:
        """Begin to read parts of the file, up to `in_flight`, to these bytes of the buffer. All before have ended.

        raises   OSError; `finish` is due then, too
        """
        count, self._sizes = len(starts), sizes
        requests = self._requests[:count]
        requests["buffer"] = [self._first + place for place in places]
        requests["size"], requests["offset"], requests["data"] = sizes, starts, range(count)
        submitted = 0
        while submitted < count:  # a queue that is full takes some
            first = self._first_pointer + submitted * self._pointers.itemsize
            done = self._call(3, self._context, count - submitted, first, 0, 0)
            submitted += done
            self.num_left += done

    def finish(self, least: int) -> list[tuple[int, str]]:
        """Wait until so many more parts have ended: number of each that has, and why it is not there, or nothing."""
        done = self._call(2, self._context, least, self.num_left, self._first_event, 0)
        self.num_left -= done
        ended = zip(self._events["data"][:done].tolist(), self._events["result"][:done].tolist(), strict=True)
        return [(number, self._problem(number, result)) for number, result in ended]

    def _read(self, starts: Sequence[int], sizes: Sequence[int], places: list[int]) -> None:
        if len(starts) == 1:
            place = places[0]
            if read_at(self._descriptor, self._buffer[place : place + sizes[0]].data, starts[0]) != sizes[0]:
                raise OSError(errno.EIO, f"the file ends before byte {starts[0] + sizes[0]}")
            return
        problems = []
        try:
            self.begin(starts, sizes, places[: len(starts)])
        finally:
            while self.num_left:  # the system writes to the buffer until then
                problems += [problem for _, problem in self.finish(self.num_left) if problem]
        if problems:
            raise OSError(errno.EIO, problems[0])

    def _problem(self, number: int, result: int) -> str:
        """Empty if a part is there"""
        if result < 0:
            return os.strerror(-result)
        return "" if result == self._sizes[number] else f"read {result} bytes of {self._sizes[number]}"

    def _set_up(self) -> int:
        """A context of the system; 0 if it has no such calls."""
        context = ctypes.c_ulong(0)
        if self._calls is None or self._libc.syscall(self._calls[0], MOST_IN_FLIGHT, ctypes.byref(context)) != 0:
            return 0
        weakref.finalize(self, self._libc.syscall, self._calls[1], context)
        return context.value

    def _call(self, which: int, *arguments: int) -> int:
        """As SYSCALL takes them"""
        assert self._calls is not None
        while True:
            done = self._syscall(self._calls[which], *arguments)
            if done >= 0:
                return done
            if (number := ctypes.get_errno()) not in (errno.EINTR, errno.EAGAIN):
                raise OSError(number, os.strerror(number))
