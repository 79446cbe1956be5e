"""`*.qbstream`: the weights of a model as the kernels read them, unit after unit, so that loading converts nothing.

    | page 0: magic, version, place and CRC of the table | unit | unit | ... | rows of the embedding | table (JSON) |

Units begin at multiples of 4096 bytes. The table holds the identity of the model, the layout of the kernels, the place
and CRC-32 of each unit, and the arrays that belong to whole tensors. A file of another model, version or layout is
written again. The file appears whole or not at all.
"""

import base64
import hashlib
import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from qbench.runtime.layers.linear import PackedLinear
from qbench.runtime.offload.units import PAGE, Unit, round_up
from quant.atomic import atomic_file
from quant.calibration.memory import release_free_memory
from quant.errors import InputError
from quant.formats import TrellisFormat, get_format
from quant.formats.int8 import Int8Format
from quant.models import EMBEDDING, ModelConfig, expected_tensors
from quant.qtensor import QTensor
from quant.regular_file import open_regular
from quant.source import Source, TensorInfo, has_row_blocks, row_blocks

MAGIC = b"QBSTREAM"
VERSION = 1
HEAD = struct.Struct("<8sIIQQ")  # magic, version, CRC-32 of the table, its first byte, its bytes
SUFFIX = ".qbstream"
BLOCK_BYTES = 4 << 20  # of rows that are read, packed and written together
PANEL_ROWS = 64  # output rows that cpu_kernels store together: 4 panels of 16, panel_layout.h
BLOCKS_IN_MEMORY = 6  # as read, packed, as bytes, and as much again that the heap keeps
WHOLE_COPIES = 3  # of a tensor that is read whole: as stored, unpacked, in our order
MOST_CACHED_BYTES = 64 << 20  # of the file in the page cache, which counts towards a limit of the kernel
CACHE_VARIABLE = "QBENCH_CACHE"  # folder of files for models that have no folder to write to


@dataclass(frozen=True, slots=True)
class RowPart:
    """One array of the embedding: start is a byte of the file, shape and dtype those of the whole array"""

    start: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class StreamFile:
    """Places of the units and arrays in the file.

    starts   unit -> first byte; crcs: unit -> CRC-32 of its bytes
    shared   tensor -> arrays that belong to the whole of it
    rows     part -> place of that array of the embedding
    embedding    (format, shape) of it
    """

    path: Path
    starts: dict[str, int]
    crcs: dict[str, int]
    shared: dict[str, dict[str, np.ndarray]]
    rows: dict[str, RowPart]
    embedding: tuple[str, tuple[int, ...]]


def stream_file(source: Source, units: Sequence[Unit], notice: Callable[[str], None]) -> StreamFile:
    """The file of a model, written first unless there is a good one.

    notice   called with a line before a file is written
    raises   InputError for a folder that cannot be written to, and a disk without room
    """
    path, identity = stream_path(source), _identity(source, units)
    found = _read_table(path, identity)
    if found is None:
        size = sum(unit.size_bytes for unit in units) + source.tensors[EMBEDDING].size_bytes + PAGE
        notice(f"writing {path} ({size / 1e9:.2f} GB), once: the weights of {source.spec} as the kernels read them")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, replaces=_is_stream_file, needed_bytes=size) as temp, temp.open("w+b") as file:
            _write(file, source, units, identity)
        release_free_memory()  # tens of MiB, which would count towards the limit until the process ends
        found = _read_table(path, identity)
    if found is None:
        raise InputError(f"{path}: it does not read back as written; remove it and check the disk")
    return found


def stream_path(source: Source) -> Path:
    """Next to the model if its folder can be written to, else in the cache folder."""
    model = Path(source.spec)
    if model.is_dir() and os.access(model, os.W_OK):
        return model / f"weights{SUFFIX}"
    if model.is_file() and os.access(model.parent, os.W_OK):
        return model.with_name(model.name + SUFFIX)
    folder = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "qbench")
    safe = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in source.spec)
    return folder / f"{safe[-80:]}-{hashlib.sha256(source.spec.encode()).hexdigest()[:12]}{SUFFIX}"


def _is_stream_file(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(len(MAGIC)) in (b"", MAGIC)


def _identity(source: Source, units: Sequence[Unit]) -> dict[str, str]:
    """A file must agree with all: the state of the model's files, its tensors, and the layout of the kernels."""
    tensors = [(name, info.shape, info.format, info.size_bytes) for name, info in sorted(source.tensors.items())]
    placed = [(unit.name, unit.size_bytes, [linear.name for linear in unit.linears]) for unit in units]
    formats = tuple(sorted({linear.format for unit in units for linear in unit.linears}))
    return {
        "model": _files_state(source),
        "tensors": hashlib.sha256(repr((tensors, placed)).encode()).hexdigest(),
        "layout": _layout_hash(formats),
    }


def _files_state(source: Source) -> str:
    """Names, sizes and times of the model's files; a hash of the contents for a model without files."""
    model = Path(source.spec)
    if not model.exists():
        return source.fingerprint()
    found = [model] if model.is_file() else [file for file in model.iterdir() if file.suffix != SUFFIX]
    if model.is_file():  # and its shards
        found = [file for file in model.parent.glob("*.gguf") if file.name[:-20] == model.name[:-20] or file == model]
    states = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(found)]
    return hashlib.sha256(repr(states).encode()).hexdigest()


@cache
def _layout_hash(formats: tuple[str, ...]) -> str:
    """Hash of the packed bytes of one small matrix in each format: another order of bytes is another hash."""
    digest = hashlib.sha256()
    weight = np.random.default_rng(0).standard_normal((72, 1024)).astype(np.float32)
    for name in formats:
        qtensor = get_format(name.removesuffix("-astatic")).quantize_ref(weight)  # the layout is the same
        digest.update(name.encode())
        digest.update(PackedLinear(qtensor).packed.bytes)
    return digest.hexdigest()


def unwritten_bytes(source: Source, units: Sequence[Unit]) -> int:
    """Memory that writing the file takes at its peak, in addition to the process before it; 0 if there is a good file.

    A tensor is read, packed and written a block of rows at a time. If its source cannot read blocks, the whole tensor
    counts, and the whole stack if a checkpoint holds several tensors as one.
    """
    if _read_table(stream_path(source), _identity(source, units)) is not None:
        return 0
    expected = expected_tensors(ModelConfig.of(source))
    stacks: Counter[str] = Counter()
    for name in expected:
        stacks[expected[name].stored.name] += source.tensors[name].size_bytes

    def reading(name: str) -> int:
        return 0 if has_row_blocks(source, name) else WHOLE_COPIES * stacks[expected[name].stored.name]

    linears = [linear for unit in units for linear in unit.linears]
    packing = (reading(each.name) + (0 if packs_by_rows(each.format) else 2 * each.size_bytes) for each in linears)
    block = min(BLOCK_BYTES, max(info.size_bytes for info in source.tensors.values()))
    return BLOCKS_IN_MEMORY * block + max(reading(EMBEDDING), *packing)


def packs_by_rows(format_name: str) -> bool:
    """Whether packed blocks of PANEL_ROWS rows, one after the other, are the packed weight.

    W8A8 and trellis codes are packed as all codes, then all scales.
    """
    return not isinstance(get_format(format_name), Int8Format | TrellisFormat)


def block_rows(info: TensorInfo) -> int:
    """Rows of about BLOCK_BYTES, in whole panels."""
    return max(1, BLOCK_BYTES * info.shape[0] // max(1, info.size_bytes) // PANEL_ROWS) * PANEL_ROWS


def packed_blocks(source: Source, name: str) -> Iterator[tuple[QTensor, np.ndarray]]:
    """Blocks of rows of a linear's weight, each with its bytes as the kernels read them."""
    info = source.tensors[name]
    for block in row_blocks(source, name, block_rows(info) if packs_by_rows(info.format) else info.shape[0]):
        yield block, PackedLinear(block).packed.bytes


def _write(file: BinaryIO, source: Source, units: Sequence[Unit], identity: dict[str, str]) -> None:
    starts, crcs, shared = {}, {}, {}
    written = _Written(file)
    file.seek(PAGE)
    for unit in units:
        starts[unit.name], written.crc, end = file.tell(), 0, 0
        for linear in unit.linears:
            written.add(b"\0" * (linear.start - end))
            for block, packed in packed_blocks(source, linear.name):
                written.add(packed.data)
                shared |= _shared_as_text(linear.name, block)
            end = linear.start + linear.size_bytes
        written.add(b"\0" * (unit.size_bytes - end))
        crcs[unit.name] = written.crc
        assert file.tell() == starts[unit.name] + unit.size_bytes
    rows = {}
    first, info = 0, source.tensors[EMBEDDING]
    for block in row_blocks(source, EMBEDDING, block_rows(info)):
        rows = rows or _row_parts(round_up(file.tell(), PAGE), info.shape[0], block)
        for name, array in block.parts.items():
            file.seek(rows[name].start + first * (array.nbytes // len(array)))
            written.add(array.tobytes())
        shared |= _shared_as_text(EMBEDDING, block)
        first += block.shape[0]
    places = {name: (part.start, part.shape, part.dtype) for name, part in rows.items()}
    table: dict[str, Any] = {"identity": identity, "starts": starts, "crcs": crcs, "shared": shared, "rows": places}
    text = json.dumps(table | {"embedding": [info.format, info.shape]}).encode()
    start = file.tell()
    file.write(text)
    file.seek(0)
    file.write(HEAD.pack(MAGIC, VERSION, zlib.crc32(text), start, len(text)))


class _Written:
    """Bytes that were added to the file, which leave the page cache before they are many.

    crc   CRC-32 of the bytes since it was set to 0
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.crc, self._cached_bytes = file, 0, 0

    def add(self, data: bytes | memoryview) -> None:
        self.crc = zlib.crc32(data, self.crc)
        self.file.write(data)
        self._cached_bytes += len(data)
        if self._cached_bytes >= MOST_CACHED_BYTES:
            _forget_pages(self.file)
            self._cached_bytes = 0


def _row_parts(start: int, num_rows: int, block: QTensor) -> dict[str, RowPart]:
    """Places of the embedding's arrays, one after the other. block: some of its rows"""
    parts = {}
    for name, array in block.parts.items():
        parts[name] = RowPart(round_up(start, PAGE), (num_rows, *array.shape[1:]), array.dtype.str)
        start = parts[name].start + num_rows * (array.nbytes // len(array))
    return parts


def _shared_as_text(tensor: str, block: QTensor) -> dict[str, dict[str, tuple[str, list[int], str]]]:
    return {tensor: {name: _as_text(array) for name, array in block.shared.items()}} if block.shared else {}


def _forget_pages(file: BinaryIO) -> None:
    """Drop written pages from the page cache, which counts towards a memory limit."""
    file.flush()
    os.fdatasync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _as_text(array: np.ndarray) -> tuple[str, list[int], str]:
    return array.dtype.str, list(array.shape), base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _from_text(dtype: str, shape: list[int], text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=dtype).reshape(shape).copy()


def _read_table(path: Path, identity: dict[str, str]) -> StreamFile | None:
    """None unless the file is there, whole, and of this identity."""
    try:
        with open_regular(path) as file:
            magic, version, crc, start, size = HEAD.unpack(file.read(HEAD.size))
            if magic != MAGIC or version != VERSION or start + size != path.stat().st_size:
                return None
            file.seek(start)
            text = file.read(size)
    except (OSError, struct.error):
        return None
    if zlib.crc32(text) != crc:
        return None
    table = json.loads(text)
    if table["identity"] != identity:
        return None
    shared = {
        tensor: {name: _from_text(*stored) for name, stored in arrays.items()}
        for tensor, arrays in table["shared"].items()
    }
    rows = {name: RowPart(start, tuple(shape), dtype) for name, (start, shape, dtype) in table["rows"].items()}
    fmt, shape = table["embedding"]
    return StreamFile(path, table["starts"], table["crcs"], shared, rows, (fmt, tuple(shape)))
