"""A safetensors file's header, checked against the file before a tensor byte is read.

header length u64 | JSON {name: {dtype, shape, data_offsets: [begin, end]}} | data, without holes
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quant.errors import InputError
from quant.json_file import parse_json
from quant.regular_file import LFS, check_is_no_pointer, open_regular

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000  # limit of the safetensors library
DTYPE_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One entry. start: byte in `path`."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    size_bytes: int


def read_header(path: Path) -> dict[str, StoredTensor]:
    """raises InputError, naming the file, for anything that is not a whole safetensors file."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(0)
            check_is_no_pointer(file.read(len(LFS)), str(path))
            file.seek(0)
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if size < LENGTH_BYTES or length > min(size - LENGTH_BYTES, MAX_HEADER_BYTES):
                raise InputError(
                    f"{path}: a header of {length} bytes in a file of {size}; it is truncated or no safetensors file"
                )
            raw = file.read(length)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from error
    entries = parse_json(raw, f"{path}: header")
    entries.pop("__metadata__", None)
    data_start = LENGTH_BYTES + length
    tensors = {name: _tensor(name, entry, data_start, path) for name, entry in entries.items()}
    _check_no_holes(tensors, data_start, size, path)
    return tensors


def _tensor(name: str, entry: Any, data_start: int, path: Path) -> StoredTensor:
    where = f"{path}: tensor {name!r}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise InputError(f"{where} must have dtype, shape and data_offsets, got {entry!r:.100}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise InputError(f"{where} has dtype {dtype!r}; known: {', '.join(DTYPE_BYTES)}")
    if not _is_counts(shape) or not _is_counts(offsets) or len(offsets) != 2 or len(shape) > 8:
        raise InputError(f"{where} has shape {shape!r:.100} and offsets {offsets!r:.100}, expected whole numbers")
    size_bytes = math.prod(shape) * DTYPE_BYTES[dtype]
    begin, end = offsets
    if end - begin != size_bytes:
        raise InputError(f"{where}: {dtype} of shape {shape} takes {size_bytes} bytes, its offsets span {end - begin}")
    return StoredTensor(path, dtype, tuple(shape), data_start + begin, size_bytes)


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value)


def _check_no_holes(tensors: dict[str, StoredTensor], data_start: int, file_size: int, path: Path) -> None:
    end = data_start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].size_bytes)):
        if tensor.start != end:
            raise InputError(
                f"{path}: tensor {name!r} starts at byte {tensor.start}, expected {end}; tensors overlap or leave holes"
            )
        end = tensor.start + tensor.size_bytes
    if end != file_size:
        raise InputError(f"{path}: the tensors end at byte {end}, the file at {file_size}; it is truncated or corrupt")
