"""Damage to artifacts on disk: bytes of a tensor changed in place, and tensors renamed, dropped or added."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.torch import load_file, save_file
from torch import Tensor

from quant.artifacts.digests import BLANK, sealed
from quant.artifacts.gguf_header import read_header
from quant.safetensors.folder import read_tensors

NUMPY_DTYPE = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "I8": "i1"}


def edit_gguf(path: Path, name: str, dtype: str, change: Callable[[np.ndarray], None]) -> None:
    """name: GGUF's; change gets the tensor's bytes as [rows, ...] of dtype, and edits them"""
    tensor = read_header(path).tensors[name]
    _edit(path, tensor.start, tensor.size_bytes, dtype, tensor.shape[0], change)


def edit_hf(folder: Path, name: str, change: Callable[[np.ndarray], None]) -> None:
    """name: as stored; change gets the array and edits it"""
    tensor = read_tensors(folder)[name]
    rows = tensor.shape[0] if tensor.shape else 1
    _edit(tensor.path, tensor.start, tensor.size_bytes, NUMPY_DTYPE[tensor.dtype], rows, change)


def _edit(path: Path, start: int, size: int, dtype: str, rows: int, change: Callable[[np.ndarray], None]) -> None:
    data = bytearray(path.read_bytes())
    array = np.frombuffer(data, dtype=dtype, count=size // np.dtype(dtype).itemsize, offset=start)
    change(array.reshape(rows, -1))
    path.write_bytes(data)


def rename_in_header(path: Path, old: str, new: str) -> None:
    """The first place of the name in a file; new is as long as old, so that nothing moves."""
    assert len(old) == len(new)
    data = path.read_bytes()
    assert old.encode() in data
    path.write_bytes(data.replace(old.encode(), new.encode(), 1))


def rewrite_tensors(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    """model.safetensors with other tensors: change edits {name: tensor}"""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def edit_json(path: Path, change: Callable[[dict], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def edit_manifest(path: Path, change: Callable[[dict], None]) -> None:
    """As `edit_json`, and the manifest gets the digest of its new text, as if it had been written so."""
    edit_json(path, lambda document: (change(document), document.update(digest=BLANK))[0])
    path.write_text(sealed(path.read_text()))
