"""DirectFile: reads that go past the page cache, which would count towards a memory limit."""

import os
import weakref
from pathlib import Path

from quant.errors import InputError


class DirectFile:
    """An open file; start, length and memory of a read are multiples of 4096.

    is_direct   False on file systems without direct reads, where pages are dropped from the cache after each read
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd, self.is_direct = os.open(path, os.O_RDONLY | os.O_DIRECT), True
        except OSError:
            self._fd, self.is_direct = os.open(path, os.O_RDONLY), False
        weakref.finalize(self, os.close, self._fd)

    def read_into(self, memory: memoryview, start: int) -> None:
        """raises InputError if the file is shorter, or cannot be read"""
        done = 0
        while done < len(memory):
            try:
                count = os.preadv(self._fd, [memory[done:]], start + done)
            except OSError as error:
                raise InputError(f"{self.path}: cannot read: {error.strerror}") from error
            if count <= 0:
                raise InputError(f"{self.path}: it ends at byte {start + done}; remove it, and it is written again")
            done += count
        if not self.is_direct:
            os.posix_fadvise(self._fd, start, len(memory), os.POSIX_FADV_DONTNEED)
