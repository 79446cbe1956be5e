"""Giving freed memory back to the system."""

import ctypes


def release_free_memory() -> None:
    """Returns freed pages to the system, where the C library can.

    Every layer frees arrays of all sizes from several threads; glibc keeps them in its arenas, a little more with each
    layer, and peak memory would then grow with the number of layers.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another C library
        pass
