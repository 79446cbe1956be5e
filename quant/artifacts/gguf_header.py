"""A GGUF file's metadata and tensor table, checked against the file before a tensor byte is read.

magic "GGUF" | version u32 | tensor count u64 | key count u64
keys:     name, value type u32, value
tensors:  name, dimension count u32, dimensions u64 (innermost first), ggml type u32, offset u64
padding to general.alignment, then the data that the offsets count from
"""

import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from quant.artifacts.gguf_cursor import LENGTH_BYTES, Cursor, Value
from quant.errors import InputError, shown
from quant.formats import format_of_gguf_type
from quant.regular_file import LFS, check_is_no_pointer, open_regular

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMS = 4
# Least bytes of a table entry, with an empty name: they bound the counts before anything is allocated.
KEY_BYTES = LENGTH_BYTES + 4 + 1
TENSOR_BYTES = LENGTH_BYTES + 4 + 8 + 4 + 8

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """One entry of the tensor table. shape: out x in, as everywhere here; start: byte in `path`."""

    path: Path
    shape: tuple[int, ...]
    format: str
    start: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """All parts before the data."""

    metadata: dict[str, Value]
    tensors: dict[str, GGUFTensor]


@dataclass(frozen=True, slots=True)
class GGUFNames:
    """The table as it is, whether or not it makes sense. tensors: (name, shape); a repeated one is repeated"""

    metadata: dict[str, Value]
    tensors: list[tuple[str, tuple[int, ...]]]


def read_header(path: Path) -> GGUFHeader:
    """raises InputError, naming the file, for anything that is not a whole GGUF v2/v3 file."""
    return _read(path, _parse)


def read_names(path: Path) -> GGUFNames:
    """The names in a file that `read_header` refuses, for its error message.

    raises   InputError, naming the file, if the table is incomplete
    """
    return _read(path, _parse_names)


def is_gguf(path: Path) -> bool:
    """True for a file that starts as GGUF does, the only kind that is written over."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _read(path: Path, parse: Callable[[Cursor, Path], Parsed]) -> Parsed:
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            if size < len(MAGIC) + 4 + 8 + 8:
                raise InputError(f"{path}: {size} bytes are too few for a GGUF file; it is truncated or something else")
            # The map is for the header alone: its size is known only once it is read.
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return parse(Cursor(data, str(path)), path)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from error


def _parse(cursor: Cursor, path: Path) -> GGUFHeader:
    metadata, entries = _table(cursor, path)
    alignment = _alignment(metadata, path)
    data_start = -(-cursor.position // alignment) * alignment
    return GGUFHeader(metadata, _place(entries, data_start, alignment, len(cursor.data), path))


def _parse_names(cursor: Cursor, path: Path) -> GGUFNames:
    metadata, entries = _table(cursor, path)
    return GGUFNames(metadata, [(name, shape) for name, shape, _, _ in entries])


def _table(cursor: Cursor, path: Path) -> tuple[dict[str, Value], list[tuple[str, tuple[int, ...], int, int]]]:
    """(metadata, tensor entries as `_tensor_entry` gives them)"""
    check_is_no_pointer(bytes(cursor.data[: len(LFS)]), str(path))
    magic = cursor.take(len(MAGIC), "magic")
    if magic != MAGIC:
        raise InputError(f"{path}: the first bytes are {magic!r}, expected {MAGIC!r}; this is no GGUF file")
    version = cursor.integer(4, "version")
    if version not in VERSIONS:
        big_endian = " (a big-endian file)" if version >> 24 in VERSIONS else ""
        raise InputError(f"{path}: GGUF version {version}{big_endian} is not supported; known: 2, 3, little-endian")
    num_tensors = cursor.count("tensor count", TENSOR_BYTES)
    num_keys = cursor.count("key count", KEY_BYTES)
    metadata = _metadata(cursor, num_keys)
    return metadata, [_tensor_entry(cursor, index) for index in range(num_tensors)]


def _metadata(cursor: Cursor, num_keys: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for index in range(num_keys):
        key = cursor.string(f"name of key {index}")
        if key in metadata:
            raise InputError(f"{cursor.where}: key {key!r} is there twice; the file is corrupt")
        metadata[key] = cursor.value(cursor.integer(4, f"type of key {key!r}"), f"key {key!r}")
    return metadata


def _tensor_entry(cursor: Cursor, index: int) -> tuple[str, tuple[int, ...], int, int]:
    """(name, shape, ggml type, offset)"""
    name = cursor.string(f"name of tensor {index}")
    num_dims = cursor.integer(4, f"dimension count of tensor {name!r}")
    if not 1 <= num_dims <= MAX_DIMS:
        raise InputError(f"{cursor.where}: tensor {name!r} has {num_dims} dimensions, expected 1 to {MAX_DIMS}")
    dims = [cursor.integer(10, f"dimension {axis} of tensor {name!r}") for axis in range(num_dims)]
    # A byte holds at most 8 weights in any format, so the file's size bounds the weights (and int64 holds them).
    if not 0 < math.prod(dims) <= 8 * len(cursor.data):
        raise InputError(f"{cursor.where}: tensor {name!r} has dimensions {dims}, more or less than the file can hold")
    ggml_type = cursor.integer(4, f"type of tensor {name!r}")
    return name, tuple(reversed(dims)), ggml_type, cursor.integer(10, f"offset of tensor {name!r}")


def _alignment(metadata: dict[str, Value], path: Path) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
        raise InputError(f"{path}: general.alignment must be a power of two, got {shown(alignment)}")
    return alignment


def _place(
    entries: list[tuple[str, tuple[int, ...], int, int]], data_start: int, alignment: int, file_size: int, path: Path
) -> dict[str, GGUFTensor]:
    """The tensor table with absolute positions; each tensor inside the file, without overlap."""
    tensors: dict[str, GGUFTensor] = {}
    for name, shape, ggml_type, offset in entries:
        if name in tensors:
            raise InputError(f"{path}: tensor {name!r} is there twice; the file is corrupt")
        if offset % alignment:
            raise InputError(f"{path}: tensor {name!r} starts at {offset}, expected a multiple of {alignment}")
        try:
            fmt = format_of_gguf_type(ggml_type)
            size_bytes = fmt.size_bytes(shape)
        except InputError as error:
            raise InputError(f"{path}: tensor {name!r}: {error}") from error
        start = data_start + offset
        if start + size_bytes > file_size:
            raise InputError(
                f"{path}: tensor {name!r} takes bytes {start} to {start + size_bytes}, the file ends at "
                f"{file_size}; it is truncated or corrupt"
            )
        tensors[name] = GGUFTensor(path, shape, fmt.name, start, size_bytes)
    end, before = 0, ""
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].start):
        if tensor.start < end:
            raise InputError(f"{path}: tensors {before!r} and {name!r} share bytes; the file is corrupt")
        end, before = tensor.start + tensor.size_bytes, name
    return tensors
