"""The fastest way to read a folder's files, by a measurement."""

import contextlib
import functools
import os
import secrets
import time
from pathlib import Path

import numpy as np

from qbench.runtime.tiers.aligned import DIRECT, READ_MODES, aligned_buffer, drop_from_page_cache, read_whole

SAMPLE_BYTES = 4 << 20  # at 1 GB/s 4 ms, far above the time of a call
ROUNDS = 3


@functools.cache
def fastest_read_mode(folder: Path) -> str:
    """One of READ_MODES, from cold reads of a file that is written for it; DIRECT if the folder takes no files."""
    path = folder / f".qbench-read-{secrets.token_hex(6)}"
    try:
        data = np.random.default_rng(0).integers(0, 256, SAMPLE_BYTES, dtype=np.uint8)
        with open(path, "wb") as file:
            file.write(data.data)
            os.fsync(file.fileno())
        return min(READ_MODES, key=lambda mode: min(_cold_seconds(path, mode) for _ in range(ROUNDS)))
    except OSError:
        return DIRECT
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _cold_seconds(path: Path, mode: str) -> float:
    drop_from_page_cache(path)
    buffer = aligned_buffer(SAMPLE_BYTES)
    buffer[:] = 0  # its memory is there before the clock starts
    begin = time.perf_counter()
    read_whole(path, buffer, mode)
    return time.perf_counter() - begin
