"""Streamer: reader threads that bring units into their region, some to stay and the others in turn."""

import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from qbench.runtime.offload.direct_file import DirectFile
from qbench.runtime.offload.region import Region
from qbench.runtime.offload.units import Unit
from quant.errors import InputError

READERS = 4  # requests in flight: with 4 of 8 MiB a virtual disk reads as fast as with more
CHUNK_BYTES = 8 << 20  # of one request, which waits until so much memory is free


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """Read times of a streamer since it was made.

    read_bytes  from the file
    waited_s    that computation waited for weights
    busy_s      with at least one read in flight
    """

    read_bytes: int
    waited_s: float
    busy_s: float


@dataclass(slots=True)
class _Coming:
    """A unit that is being read: chunks that are not there yet."""

    chunks_left: int


class Streamer:
    """Brings units in the order of a forward pass, over and over; the next ones are read while one is computed with.

    A unit is read in chunks, and a chunk as soon as that much memory is free: so memory for the largest unit and some
    chunks keeps the disk busy.

    crcs         unit -> CRC-32; a unit without one is not checked
    read_bytes   from the file since it was made
    """

    def __init__(
        self,
        file: DirectFile,
        region: Region,
        units: Sequence[Unit],
        starts: Mapping[str, int],
        crcs: Mapping[str, int],
    ) -> None:
        self._file, self._region = file, region
        self._units = {unit.name: unit for unit in units}
        self._starts, self._crcs = starts, crcs
        self._changed = threading.Condition()
        self._resident: set[str] = set()
        self._checked: set[str] = set()
        self._coming: dict[str, _Coming] = {}
        self._urgent: deque[tuple[str, int]] = deque()  # chunks that somebody waits for: (unit, first byte)
        self._order: list[str] = []
        self._next = (0, 0)  # of the order, and the byte in that unit
        self._free = 0
        self._in_flight = 0
        self._error: Exception | None = None
        self._is_closed = False
        self.read_bytes = 0
        self._waited_s = self._busy_s = 0.0
        self._busy_since = 0.0
        for _ in range(READERS):
            threading.Thread(target=self._read, daemon=True, name="weights").start()

    @property
    def resident_bytes(self) -> int:
        """Bytes of units that are there, of the parts that are read of others, and of memory that waits for them."""
        with self._changed:
            there = sum(self._region.held_bytes(name) for name in self._resident)
            return there + sum(self._taken(name) for name in self._coming) + self._region.spare_bytes

    def stream(self, order: Sequence[str], ring_bytes: int, keep: frozenset[str] = frozenset()) -> None:
        """From now on bring the units of `order` in turn, through so much memory.

        keep    units that stay if they are there; all others go
        """
        with self._changed:
            self._stop_reading()
            for name in [*self._resident, *self._coming]:
                if name not in keep or name in self._coming:
                    self._drop(name)
            self._region.trim(0)
            self._order, self._next, self._free = list(order), (0, 0), ring_bytes
            self._changed.notify_all()

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """No read is in flight while the block runs: the memory of the process and `resident_bytes` then agree."""
        with self._changed:
            self._stop_reading()
            yield
            self._changed.notify_all()

    def need(self, name: str) -> None:
        """Wait until the unit is there, which is read at once if it is not the next of the order.

        raises   InputError if the file cannot be read or is damaged
        """
        with self._changed:
            if name not in self._resident and name not in self._coming:
                self._ask(name)
            begin = time.perf_counter()
            self._changed.wait_for(lambda: name in self._resident or self._error is not None)
            self._waited_s += time.perf_counter() - begin
            if self._error is not None:
                raise self._error
        self._check(name)

    @property
    def times(self) -> ReadTimes:
        with self._changed:
            running = time.perf_counter() - self._busy_since if self._in_flight else 0.0
            return ReadTimes(self.read_bytes, self._waited_s, self._busy_s + running)

    def done(self, name: str) -> None:
        """A unit of the order was computed with: its memory is for the next."""
        with self._changed:
            if name in self._resident:
                self._resident.discard(name)
                self._region.recycle(name)
                self._free += self._region.held_bytes(name)
                self._changed.notify_all()

    def drop(self, names: Sequence[str]) -> None:
        """Give up the memory of units outside the order."""
        with self._changed:
            for name in names:
                if name in self._resident:
                    self._drop(name)

    def bring(self, names: Sequence[str]) -> None:
        """Read units outside the order, all at once; `need` waits for each."""
        with self._changed:
            away = [name for name in dict.fromkeys(names) if name not in self._resident and name not in self._coming]
            for name in away:
                self._queue(name)
            if away:  # readers that wake up for nothing take turns with the thread that computes
                self._changed.notify_all()

    def bandwidth(self, names: Sequence[str], most_bytes: int) -> float:
        """Bytes per second of direct reads of these units, with as many requests, and no computation."""
        spans = [
            (self._starts[name] + start, min(CHUNK_BYTES, self._units[name].size_bytes - start))
            for name in names
            for start in range(0, self._units[name].size_bytes, CHUNK_BYTES)
        ][: max(READERS, most_bytes // CHUNK_BYTES)]
        with self.at_rest():
            return self._file.bandwidth(spans, READERS)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _ask(self, name: str) -> None:
        """A unit that nobody reads: one outside the order, or the order is somewhere else and begins again with it.

        It may also be the next one, and units of a pass that broke off leave it no room.
        """
        if name not in self._order:
            self._queue(name)
        elif self._order[self._next[0]] != name or not {*self._resident, *self._coming}.isdisjoint(self._order):
            self._restart_at(name)
        self._changed.notify_all()

    def _queue(self, name: str) -> None:
        size = self._units[name].size_bytes
        starts = range(0, size, CHUNK_BYTES)
        self._coming[name] = _Coming(len(starts))
        self._urgent.extend((name, start) for start in starts)

    def _restart_at(self, name: str) -> None:
        self._stop_reading()
        for other in [*self._resident, *self._coming]:
            if other in self._order:
                self._free += self._region.held_bytes(other) if other in self._resident else self._taken(other)
                self._drop(other)
        self._next = (self._order.index(name), 0)

    def _taken(self, name: str) -> int:
        """Bytes that the chunks of a unit in the middle of its reading have taken."""
        is_next = bool(self._order) and self._order[self._next[0]] == name
        return self._next[1] if is_next else self._region.held_bytes(name)

    def _stop_reading(self) -> None:
        """Wait for the requests in flight; the lock is held, so no new one begins before it is given up."""
        order, self._order = self._order, []
        urgent, self._urgent = self._urgent, deque()
        self._changed.wait_for(lambda: self._in_flight == 0)
        self._order, self._urgent = order, urgent

    def _drop(self, name: str) -> None:
        self._resident.discard(name)
        self._coming.pop(name, None)
        self._region.drop(name)

    def _take(self) -> tuple[str, int, int] | None:
        """The next chunk to read as (unit, first byte, end), or None; the lock is held."""
        if self._urgent:
            name, start = self._urgent.popleft()
            return name, start, min(start + CHUNK_BYTES, self._units[name].size_bytes)
        if not self._order:
            return None
        place, start = self._next
        name = self._order[place]
        if start == 0 and (name in self._resident or name in self._coming):
            return None  # the order has come round to a unit that is not computed with yet
        size, held = self._units[name].size_bytes, self._region.held_bytes(name)
        end = min(start + CHUNK_BYTES, size)
        takes = (held if end == size else end) - start
        if takes > self._free:
            return None
        self._free -= takes
        self._region.refill(name, start, takes)
        self._region.trim(self._free)
        self._next = ((place + 1) % len(self._order), 0) if end == size else (place, end)
        if start == 0:
            self._coming[name] = _Coming(-(-size // CHUNK_BYTES))
        return name, start, end

    def _read(self) -> None:
        """The loop of each reader thread."""
        while True:
            with self._changed:
                chunk = None
                while not self._is_closed and (chunk := self._take()) is None:
                    self._changed.wait()
                if chunk is None:
                    return
                if not self._in_flight:
                    self._busy_since = time.perf_counter()
                self._in_flight += 1
            name, start, end = chunk
            error = None
            try:
                memory = self._region.view(name).data[start:end]
                self._file.read_into(memory, self._starts[name] + start)
            except Exception as failure:  # raised in the thread that waits
                error = failure
            with self._changed:
                self._in_flight -= 1
                if not self._in_flight:
                    self._busy_s += time.perf_counter() - self._busy_since
                self.read_bytes += end - start
                self._error = self._error or error
                if (coming := self._coming.get(name)) is not None:
                    coming.chunks_left -= 1
                    if not coming.chunks_left:
                        del self._coming[name]
                        self._resident.add(name)
                self._changed.notify_all()

    def _check(self, name: str) -> None:
        """The CRC of a unit when it is read for the first time."""
        if name in self._checked or name not in self._crcs:
            return
        size = self._units[name].size_bytes
        if zlib.crc32(self._region.view(name).data[:size]) != self._crcs[name]:
            raise InputError(f"{self._file.path}: {name} is damaged; remove the file, and it is written again")
        self._checked.add(name)
