"""Contents of an importance matrix file of llama.cpp, in both of its layouts, under GGUF's tensor names.

source   llama.cpp, tools/imatrix/imatrix.cpp and common/imatrix-loader.cpp
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from quant.artifacts.file_bytes import read_span
from quant.artifacts.gguf_cursor import Cursor
from quant.artifacts.gguf_header import GGUFTensor, is_gguf, read_header
from quant.errors import InputError, shown

GENERAL_TYPE = "imatrix"
SUMS, COUNTS = ".in_sum2", ".counts"
CHUNK_TOKENS = 512  # llama.cpp's own choice; older files count chunks rather than tokens
INT32 = 5


@dataclass(frozen=True, slots=True)
class ImatrixEntry:
    """One tensor's statistics: means [num_matrices, K] float32 of the squared inputs, and counts [num_matrices] of
    their tokens. More than one matrix: a stack of experts.
    """

    means: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True, slots=True)
class ImatrixFile:
    """entries: GGUF tensor name -> statistics; datasets: their sources, as the tool names them"""

    entries: Mapping[str, ImatrixEntry]
    datasets: tuple[str, ...] = ()
    num_chunks: int = 0


def read_imatrix_file(path: Path) -> ImatrixFile:
    """A file of either layout. raises InputError, naming the file, for anything else"""
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected an importance matrix of llama.cpp")
    found = _read_gguf(path) if is_gguf(path) else _read_legacy(path)
    if not found.entries:
        raise InputError(f"{path}: holds no importance of any tensor")
    for name, entry in found.entries.items():
        if not np.isfinite(entry.means).all() or (entry.means < 0).any():
            raise InputError(f"{path}: {name} has an importance that is negative or no number; make the file again")
    return found


def _read_gguf(path: Path) -> ImatrixFile:
    """NAME.in_sum2 [num_matrices, K] float32: sums of squares; NAME.counts [num_matrices, 1] float32: tokens"""
    header = read_header(path)
    kind = header.metadata.get("general.type")
    if kind != GENERAL_TYPE:
        raise InputError(f"{path}: a GGUF file of general.type {shown(kind)}, expected {GENERAL_TYPE!r}")
    entries = {}
    for tensor_name, tensor in header.tensors.items():
        if not tensor_name.endswith(SUMS):
            continue
        name = tensor_name.removesuffix(SUMS)
        if name + COUNTS not in header.tensors:
            raise InputError(f"{path}: tensor {name + COUNTS!r} is missing; the file is incomplete")
        entries[name] = _entry(_floats(tensor), _floats(header.tensors[name + COUNTS]), f"{path}: {name}")
    datasets, num_chunks = header.metadata.get("imatrix.datasets", []), header.metadata.get("imatrix.chunk_count", 0)
    if not isinstance(datasets, list) or not isinstance(num_chunks, int | float):
        raise InputError(f"{path}: imatrix.datasets must be a list of texts and imatrix.chunk_count a number")
    return ImatrixFile(entries, tuple(map(str, datasets)), int(num_chunks))


def _entry(sums: np.ndarray, counts: np.ndarray, where: str) -> ImatrixEntry:
    """Statistics as llama-quantize reads them: a matrix that no token reached has equal weights."""
    if sums.size % counts.size or not (counts >= 0).all():
        raise InputError(f"{where}: {sums.size} sums do not belong to {counts.size} counts; the file is corrupt")
    sums = sums.reshape(counts.size, -1)
    means = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], np.float32(1))
    return ImatrixEntry(means.astype(np.float32), counts.astype(np.int64))


def _floats(tensor: GGUFTensor) -> np.ndarray:
    if tensor.format != "f32":
        raise InputError(f"{tensor.path}: sums and counts must be f32, got {tensor.format}")
    return read_span(tensor.path, tensor.start, tensor.size_bytes).view("<f4")


def _read_legacy(path: Path) -> ImatrixFile:
    """entry count | entries | chunk count | dataset; an entry: name, calls, value count, values: means x calls

    All counts and lengths are int32; the two last fields may be missing.
    """
    cursor = Cursor(path.read_bytes(), f"{path} (as an importance matrix of the older layout)")
    entries = {}
    for index in range(_count(cursor, "entry count")):
        name = _text(cursor, f"name of entry {index}")
        calls = cursor.integer(INT32, f"calls of {name}")
        num_values = _count(cursor, f"value count of {name}")
        values = np.frombuffer(cursor.take(4 * num_values, f"values of {name}"), "<f4")
        counts = np.array([max(calls, 0) * CHUNK_TOKENS])
        entries[name] = ImatrixEntry((values / np.float32(max(calls, 1)))[None], counts)
    num_chunks = cursor.integer(INT32, "chunk count") if cursor.remaining else 0
    datasets = (_text(cursor, "dataset"),) if cursor.remaining else ()
    return ImatrixFile(entries, tuple(text for text in datasets if text), num_chunks)


def _count(cursor: Cursor, what: str) -> int:
    value = cursor.integer(INT32, what)
    if value < 1:
        raise InputError(f"{cursor.where}: {what} is {value}, expected 1 or more; this is none")
    return value


def _text(cursor: Cursor, what: str) -> str:
    length = cursor.integer(INT32, f"length of {what}")
    if length < 0:
        raise InputError(f"{cursor.where}: length of {what} is {length}; this is none")
    return cursor.take(length, what).decode("utf-8", errors="replace")


def write_gguf_layout(file: ImatrixFile, path: Path) -> None:
    writer = gguf.GGUFWriter(path, arch="")  # which leaves general.architecture out, as llama.cpp does
    writer.add_type(GENERAL_TYPE)
    writer.add_array("imatrix.datasets", list(file.datasets))
    writer.add_uint32("imatrix.chunk_count", file.num_chunks)
    writer.add_uint32("imatrix.chunk_size", CHUNK_TOKENS)
    for name, entry in sorted(file.entries.items()):
        counts = entry.counts[:, None].astype(np.float32)
        writer.add_tensor(name + SUMS, _trimmed((entry.means * counts).astype(np.float32)))
        writer.add_tensor(name + COUNTS, _trimmed(counts))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _trimmed(array: np.ndarray) -> np.ndarray:
    """ggml has no leading dimension of 1."""
    return array[0] if len(array) == 1 else array


def write_legacy_layout(file: ImatrixFile, path: Path) -> None:
    chunks = bytearray()

    def put(*numbers: int) -> None:
        chunks.extend(np.array(numbers, "<i4").tobytes())

    put(len(file.entries))
    for name, entry in sorted(file.entries.items()):
        calls = -(-int(entry.counts.max()) // CHUNK_TOKENS)
        put(len(name.encode()))
        chunks.extend(name.encode())
        put(calls, entry.means.size)
        chunks.extend((entry.means * np.float32(calls)).astype("<f4").tobytes())
    dataset = file.datasets[-1].encode() if file.datasets else b""  # it has room for one
    put(file.num_chunks, len(dataset))
    path.write_bytes(chunks + dataset)
