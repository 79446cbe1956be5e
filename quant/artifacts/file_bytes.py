"""Parts of files as arrays, and hashes of whole files."""

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np

from quant.errors import InputError
from quant.regular_file import open_regular


def read_span(path: Path, start: int, num_bytes: int) -> np.ndarray:
    """[num_bytes] uint8, a fresh array.

    Read and not mapped: a map would count towards the process's resident memory in addition to the tensors made from
    it, and a file that shrinks under a map ends the process with SIGBUS instead of this error.
    raises   InputError if the file is gone or shorter
    """
    try:
        data = np.fromfile(path, dtype=np.uint8, count=num_bytes, offset=start)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror or error}") from error
    if data.size != num_bytes:
        raise InputError(f"{path}: it ends at byte {start + data.size}, expected at least {start + num_bytes}")
    return data


def sha256_file(path: Path) -> str:
    """sha256 hex of the file's bytes, computed once for each state of the file."""
    try:
        stat = path.stat()
        return _sha256(path, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from error


@lru_cache(maxsize=4096)
def _sha256(path: Path, size: int, mtime_ns: int) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def combine(parts: list[str]) -> str:
    """sha256 hex over strings, one per line."""
    return hashlib.sha256("".join(f"{part}\n" for part in parts).encode()).hexdigest()
