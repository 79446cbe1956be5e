"""Moves pages of memory to other addresses: the system changes its tables, and no byte is copied or cleared."""

import ctypes
import functools
import mmap
import os

import numpy as np

# Flags of mremap: include/uapi/linux/mman.h. The old addresses stay reserved, without memory.
MAYMOVE, FIXED, DONTUNMAP = 1, 2, 4
PAGE = 4096


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
