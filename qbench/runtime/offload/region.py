"""Region: an address for every unit, and memory only for those that are there."""

import mmap

import numpy as np

from qbench.runtime.offload.units import Unit, round_up

HUGE_PAGE = 2 << 20
MAP_NORESERVE = 0x4000  # Linux; more addresses than memory are reserved


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

    def view(self, unit: str) -> np.ndarray:
        """[size] uint8: whole pages at the unit's address"""
        start, size = self._span(unit)
        return self._bytes[start : start + size]

    def held_bytes(self, unit: str) -> int:
        """Bytes that the unit takes when it is there."""
        return self._sizes[unit]

    def drop(self, unit: str) -> None:
        """Give the unit's memory back; its bytes then read as zeros."""
        self._map.madvise(mmap.MADV_DONTNEED, *self._span(unit))

    def _span(self, unit: str) -> tuple[int, int]:
        return self._first + self._starts[unit], self._sizes[unit]
