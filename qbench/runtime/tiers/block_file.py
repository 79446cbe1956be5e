"""One block as a file: a header of one page, then the block, padded to whole pages for direct I/O.

    0   8  magic          "QBKVBLK\\0"
    8   4  version        FORMAT
    12  4  depth          number of the block in its chain
    16  16 space          digest of the store's identity: model, KV format, layout
    32  16 digest         of the chain up to the block's end
    48  8  size           bytes of the block
    56  8  computed_at    float64, seconds since 1970
    64  8  compute_s      float64
    72  16 checksum       blake2b of bytes 0 to 71 and of the block
    88     zeros up to HEADER_BYTES

All numbers are little-endian. A file that was cut, or whose bytes have changed, fails its checksum.
"""

import hashlib
import os
import struct
from pathlib import Path

import numpy as np

from qbench.runtime.tiers.aligned import ALIGNMENT, padded
from qbench.runtime.tiers.block_store import BlockKey, BlockNote, CorruptBlock

FORMAT = 1
MAGIC = b"QBKVBLK\0"
FIELDS = struct.Struct("<8sII16s16sQdd")
CHECKSUM_BYTES = 16
HEADER_BYTES = ALIGNMENT
assert FIELDS.size == 72


def file_bytes(block_bytes: int) -> int:
    return HEADER_BYTES + padded(block_bytes)


def pack_header(space: bytes, key: BlockKey, data: np.ndarray, note: BlockNote) -> bytes:
    fields = FIELDS.pack(MAGIC, FORMAT, key.depth, space, key.digest, data.nbytes, note.computed_at, note.compute_s)
    return (fields + _checksum(fields, data)).ljust(HEADER_BYTES, b"\0")


def unpack(space: bytes, key: BlockKey, file: np.ndarray, block_bytes: int) -> tuple[BlockNote, np.ndarray]:
    """The note and the block of a whole file; raises CorruptBlock."""
    if len(file) != file_bytes(block_bytes):
        raise CorruptBlock(f"{len(file)} bytes, expected {file_bytes(block_bytes)}")
    fields = file[: FIELDS.size].tobytes()
    magic, version, depth, its_space, digest, size, computed_at, compute_s = FIELDS.unpack(fields)
    if (magic, version, depth, its_space, digest, size) != (MAGIC, FORMAT, key.depth, space, key.digest, block_bytes):
        raise CorruptBlock("the header is another block's")
    data = file[HEADER_BYTES : HEADER_BYTES + block_bytes]
    if file[FIELDS.size : FIELDS.size + CHECKSUM_BYTES].tobytes() != _checksum(fields, data):
        raise CorruptBlock("the checksum differs")
    return BlockNote(computed_at, compute_s), data


def write_file(temporary: Path, path: Path, header: bytes, data: np.ndarray) -> None:
    """The file appears whole or not at all: written under a temporary name, synchronised, then renamed."""
    padding = bytes(padded(data.nbytes) - data.nbytes)
    parts = [memoryview(header), data.data, memoryview(padding)]
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        while parts:
            written = os.writev(descriptor, parts)
            while parts and written >= len(parts[0]):
                written -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][written:]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)


def _checksum(fields: bytes, data: np.ndarray) -> bytes:
    checksum = hashlib.blake2b(fields, digest_size=CHECKSUM_BYTES)
    checksum.update(data.data)
    return checksum.digest()
