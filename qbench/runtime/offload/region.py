"""Region: an address for every unit, and memory only for those that are there."""

import ctypes
import functools
import mmap
import os

import numpy as np

from qbench.runtime.offload.units import Unit, round_up

HUGE_PAGE = 2 << 20
LEAST_SPARE = 256 << 10  # bytes: moving a shorter piece takes about as long as clearing it
MAP_NORESERVE = 0x4000  # Linux; more addresses than memory are reserved
# Flags of mremap: include/uapi/linux/mman.h. The old addresses stay reserved, without memory.
MAYMOVE, FIXED, DONTUNMAP = 1, 2, 4
PAGE = 4096


def reserve(size: int) -> tuple[mmap.mmap, int]:
    """Addresses for so many bytes, and the first huge page in them.

    The map is private: pages of a shared map would be small, and a direct read takes half as long into huge pages.
    """
    memory = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    return memory, -np.frombuffer(memory, dtype=np.uint8).ctypes.data % HUGE_PAGE


def held_size(unit: Unit) -> int:
    """Bytes that a unit takes in memory."""
    return round_up(unit.size_bytes, HUGE_PAGE) if unit.size_bytes >= HUGE_PAGE else unit.size_bytes


class Region:
    """One range of addresses. A page takes memory when it is first written, and gives it back by `drop`.

    So a weight of the kernels keeps its address while its bytes come and go, and nothing is bound again.
    Units of 2 MiB and more begin on huge pages of their own: a huge page that two units share could not be freed.

    The system clears each page that it gives. So `recycle` keeps the pages of a unit, and `refill` moves them to the
    address of another one. Huge pages go to large units only, and small ones to small units.

    spare_bytes   of pages that are kept
    """

    def __init__(self, units: list[Unit]) -> None:
        self._starts: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        end = 0
        for unit in units:
            is_large = unit.size_bytes >= HUGE_PAGE
            end = round_up(end, HUGE_PAGE) if is_large else end
            self._starts[unit.name] = end
            self._sizes[unit.name] = held_size(unit)
            end += self._sizes[unit.name]
        self._map, self._first = reserve(end)
        for unit in units:
            if unit.size_bytes >= HUGE_PAGE:
                self._map.madvise(mmap.MADV_HUGEPAGE, *self._span(unit.name))
        self._bytes = np.frombuffer(self._map, dtype=np.uint8)
        self._spare: dict[bool, list[tuple[int, int]]] = {False: [], True: []}  # start, end; of large units: True
        self.spare_bytes, self._can_move = 0, can_move()

    def view(self, unit: str) -> np.ndarray:
        """[size] uint8: whole pages at the unit's address"""
        start, size = self._span(unit)
        return self._bytes[start : start + size]

    def held_bytes(self, unit: str) -> int:
        """Bytes that the unit takes when it is there."""
        return self._sizes[unit]

    def drop(self, unit: str) -> None:
        """Give the unit's memory back; its bytes then read as zeros."""
        start, size = self._span(unit)
        self._gaps(self._spare[size >= HUGE_PAGE], start, start + size)
        self._map.madvise(mmap.MADV_DONTNEED, start, size)

    def recycle(self, unit: str) -> None:
        """Keep the unit's memory for others; its bytes are lost."""
        if not self._can_move:
            return self.drop(unit)
        start, size = self._span(unit)
        self._spare[size >= HUGE_PAGE].append((start, start + size))
        self.spare_bytes += size

    def refill(self, unit: str, start: int, size: int) -> None:
        """Move spare pages to these bytes of a unit, as many as there are."""
        first, whole = self._span(unit)
        pool = self._spare[whole >= HUGE_PAGE]
        for gap, end in self._gaps(pool, first + start, first + start + size):
            while gap < end and pool:
                source, its_end = pool.pop(0)
                count = min(end - gap, its_end - source)
                move_pages(self._bytes, source, gap, count)
                self.spare_bytes -= count
                gap += count
                self._keep(pool, source + count, its_end)

    def trim(self, most_bytes: int) -> None:
        """Give spare memory back until no more than so many bytes are left."""
        for pool in self._spare.values():
            while pool and self.spare_bytes > most_bytes:
                self._give_back(*pool.pop(0))

    def _gaps(self, pool: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
        """Parts of a range without spare pages; those that it has already stay there."""
        gaps, pieces = [(start, end)], pool[:]
        pool.clear()
        for low, high in pieces:
            if high <= start or low >= end:
                pool.append((low, high))
                continue
            inner = max(low, start), min(high, end)
            self.spare_bytes -= inner[1] - inner[0]
            self._keep(pool, low, inner[0])
            self._keep(pool, inner[1], high)
            gaps = [rest for gap in gaps for rest in _without(gap, inner)]
        return gaps

    def _keep(self, pool: list[tuple[int, int]], start: int, end: int) -> None:
        """The rest of a spare piece"""
        if end - start >= LEAST_SPARE:
            pool.append((start, end))
        elif end > start:
            self._give_back(start, end)

    def _give_back(self, start: int, end: int) -> None:
        self._map.madvise(mmap.MADV_DONTNEED, start, end - start)
        self.spare_bytes -= end - start

    def _span(self, unit: str) -> tuple[int, int]:
        return self._first + self._starts[unit], self._sizes[unit]


def _without(whole: tuple[int, int], part: tuple[int, int]) -> list[tuple[int, int]]:
    """The rest of a range"""
    sides = (whole[0], min(whole[1], part[0])), (max(whole[0], part[1]), whole[1])
    return [side for side in sides if side[0] < side[1]]


@functools.cache
def can_move() -> bool:
    """Whether the system moves pages and keeps the old addresses: Linux 5.7 and later."""
    memory = np.frombuffer(mmap.mmap(-1, 3 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=np.uint8)
    memory[0] = 1
    try:
        move_pages(memory, 0, 2 * PAGE, PAGE)
    except (OSError, AttributeError):  # another system's C library has no mremap
        return False
    return (memory[0], memory[2 * PAGE]) == (0, 1)


def move_pages(memory: np.ndarray, source: int, target: int, size: int) -> None:
    """The target gets the bytes of the source, which reads as zeros from then on.

    memory   of a private anonymous map; source, target, size: bytes in it, whole pages that do not overlap
    raises   OSError
    """
    first = memory.ctypes.data
    moved = _mremap()(first + source, size, size, MAYMOVE | FIXED | DONTUNMAP, first + target)
    if moved != first + target:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@functools.cache
def _mremap():
    call = ctypes.CDLL(None, use_errno=True).mremap
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
    call.restype = ctypes.c_void_p
    return call
