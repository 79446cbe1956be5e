"""DirectFile: reads that go past the page cache, which would count towards a memory limit."""

import mmap
import os
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from qbench.runtime.offload.region import HUGE_PAGE, reserve
from qbench.runtime.offload.units import round_up
from qbench.runtime.tiers.aligned import DIRECT, is_direct, open_for_reading, read_at
from quant.errors import InputError


class DirectFile:
    """An open file; start, length and memory of a read are multiples of 4096.

    is_direct   False on file systems without direct reads, where pages are dropped from the cache after each read
    """

    def __init__(self, path: Path) -> None:
        self.path, self._fd = path, open_for_reading(path, DIRECT)
        self.is_direct = is_direct(self._fd)
        weakref.finalize(self, os.close, self._fd)

    def read_into(self, memory: memoryview, start: int) -> None:
        """raises InputError if the file is shorter, or cannot be read"""
        try:
            count = read_at(self._fd, memory, start)
        except OSError as error:
            raise InputError(f"{self.path}: cannot read: {error.strerror}") from error
        if count < len(memory):
            raise InputError(f"{self.path}: it ends at byte {start + count}; remove it, and it is written again")
        if not self.is_direct:
            os.posix_fadvise(self._fd, start, len(memory), os.POSIX_FADV_DONTNEED)

    def bandwidth(self, spans: Sequence[tuple[int, int]], readers: int) -> float:
        """Bytes per second by so many threads. spans: first byte and length of each request"""
        longest = round_up(max(size for _, size in spans), HUGE_PAGE)
        memory, first = reserve(readers * longest)
        memory.madvise(mmap.MADV_HUGEPAGE, first, readers * longest)
        waiting = iter(spans)
        lock = threading.Lock()

        def read(number: int) -> None:
            into = memoryview(memory)[first + number * longest :]
            while True:
                with lock:
                    span = next(waiting, None)
                if span is None:
                    return
                self.read_into(into[: span[1]], span[0])

        threads = [threading.Thread(target=read, args=(number,)) for number in range(readers)]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(size for _, size in spans) / (time.perf_counter() - begin)
