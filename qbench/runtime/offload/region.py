"""Region: an address for every unit, and memory only for those that are there."""

import mmap

import numpy as np

from qbench.runtime.offload.units import Unit, round_up

HUGE_PAGE = 2 << 20
MAP_NORESERVE = 0x4000  # Linux; more addresses than memory are reserved


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
            self._sizes[unit.name] = round_up(unit.size_bytes, HUGE_PAGE) if is_large else unit.size_bytes
            end += self._sizes[unit.name]
        # One huge page more, so that the first unit can begin on one.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        self._map = mmap.mmap(-1, max(1, end) + HUGE_PAGE, flags=flags)
        whole = np.frombuffer(self._map, dtype=np.uint8)
        self._first = -whole.ctypes.data % HUGE_PAGE
        for unit in units:
            if unit.size_bytes >= HUGE_PAGE:
                self._map.madvise(mmap.MADV_HUGEPAGE, *self._span(unit.name))
        self._bytes = whole

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
