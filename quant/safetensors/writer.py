"""Writes safetensors files: of tensors one after another, split by a limited size, or of arrays in memory."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from quant.safetensors.header import DTYPE_BYTES, LENGTH_BYTES

SHARD_BYTES = 5 * 10**9  # limit at which transformers splits
INDEX_NAME = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor to be written: its name in the file and its entry in the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * DTYPE_BYTES[self.dtype]


class SafetensorsWriter:
    """Takes arrays by name, in any order; each goes to its place in its file at once."""

    def __init__(self, files: dict[str, tuple[IO[bytes], int]]) -> None:
        self._files = files  # tensor name -> (file, its first byte)

    def write(self, name: str, array: np.ndarray) -> None:
        file, start = self._files[name]
        file.seek(start)
        file.write(np.ascontiguousarray(array).data)


@contextmanager
def safetensors_writer(
    folder: Path, groups: list[list[Entry]], shard_bytes: int = SHARD_BYTES
) -> Iterator[SafetensorsWriter]:
    """Opens model.safetensors, or numbered files with their index, headers written.

    groups   tensors that stay in one file together
    """
    shards = _split(groups, shard_bytes)
    names = ["model.safetensors"]
    if len(shards) > 1:
        names = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
        _write_index(folder, names, shards)
    places = {}
    with ExitStack() as stack:
        for name, entries in zip(names, shards, strict=True):
            file = stack.enter_context((folder / name).open("wb"))
            places |= {entry: (file, start) for entry, start in _write_header(file, entries).items()}
        yield SafetensorsWriter(places)


def _split(groups: list[list[Entry]], shard_bytes: int) -> list[list[Entry]]:
    shards: list[list[Entry]] = [[]]
    size = 0
    for group in groups:
        group_bytes = sum(entry.size_bytes for entry in group)
        if shards[-1] and size + group_bytes > shard_bytes:
            shards.append([])
            size = 0
        shards[-1] += group
        size += group_bytes
    return shards


def _write_index(folder: Path, names: list[str], shards: list[list[Entry]]) -> None:
    total = sum(entry.size_bytes for entries in shards for entry in entries)
    weight_map = {entry.name: name for name, entries in zip(names, shards, strict=True) for entry in entries}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _write_header(file: IO[bytes], entries: list[Entry]) -> dict[str, int]:
    """Writes the header; returns tensor name -> byte where its data starts.

    Wide dtypes come first, so that every tensor is aligned to its own item size.
    """
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for entry in sorted(entries, key=lambda entry: -DTYPE_BYTES[entry.dtype]):
        end = offset + entry.size_bytes
        header[entry.name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [offset, end]}
        offset = end
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    file.write(len(raw).to_bytes(LENGTH_BYTES, "little") + raw)
    start = LENGTH_BYTES + len(raw)
    return {entry.name: start + header[entry.name]["data_offsets"][0] for entry in entries}


def save_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Writes the arrays under their names.

    raises   OSError if the disk does not take them, which safetensors reports only in words
    """
    try:
        save_file(dict(arrays), path)
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        number = int(code[1])
        raise OSError(number, os.strerror(number), str(path)) from error
