"""A Hugging Face directory as a Source, packed integer weights of compressed-tensors included."""

from pathlib import Path

import numpy as np

from quant.artifacts.compressed_tensors import PACKED_PARTS, SHAPE_PART, packed_formats
from quant.artifacts.file_bytes import combine, read_span, sha256_file
from quant.artifacts.hf_tokenizer import TOKENIZER, TOKENIZER_CONFIG, read_tokenizer
from quant.artifacts.json_file import read_json
from quant.artifacts.safetensors_dir import read_tensors, weight_files
from quant.artifacts.safetensors_header import StoredTensor
from quant.errors import InputError
from quant.formats import IntGroupFormat
from quant.formats.base import rows_of
from quant.formats.int_packing import packed_words
from quant.models import ModelConfig, expected_tensors, is_leftover
from quant.qtensor import QTensor
from quant.source import TensorInfo

CONFIG = "config.json"
FORMAT_OF_DTYPE = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
NUMPY_DTYPE = {"I32": "<i4", "F16": "<f2"}


class HFSource:
    """Source over a directory; config, tokenizer and all headers are checked when it opens.

    raises   InputError, naming the file, for all that is not a whole model of a known architecture
    """

    def __init__(self, path: Path, spec: str | None = None) -> None:
        self.spec = spec or str(path)
        self.path = path
        config_path = path / CONFIG
        self.config = read_json(config_path)
        expected = expected_tensors(ModelConfig.from_hf(self.config, str(config_path)))
        self._formats = packed_formats(self.config, str(config_path))
        self._stored = read_tensors(path)
        self.tensors = {name: self._info(name, want.shape) for name, want in expected.items()}
        self._check_nothing_else()
        self.tokenizer = read_tokenizer(path, self.config)

    def read(self, name: str) -> QTensor:
        info = self.tensors[name]
        if name in self._stored:
            rows, _ = rows_of(info.shape)
            data = _read(self._stored[name])
            return QTensor(info.format, info.shape, {"blocks": data.reshape(*rows, -1)})
        parts = {}
        for part in PACKED_PARTS:
            stored = self._part(name, part)
            parts[part] = _read(stored).view(NUMPY_DTYPE[stored.dtype]).reshape(stored.shape)
        return QTensor(info.format, info.shape, parts)

    def fingerprint(self) -> str:
        files = [self.path / name for name in (CONFIG, TOKENIZER, TOKENIZER_CONFIG)]
        files = [file for file in files if file.exists()] + weight_files(self.path)
        return combine([f"{file.name} {sha256_file(file)}" for file in files])

    def _info(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        stored = self._stored.get(name)
        if stored is None:
            return self._packed_info(name, shape)
        if stored.shape != shape:
            raise InputError(f"{stored.path}: tensor {name!r} has shape {stored.shape}, {CONFIG} says {shape}")
        if stored.dtype not in FORMAT_OF_DTYPE:
            known = ", ".join(FORMAT_OF_DTYPE)
            raise InputError(f"{stored.path}: tensor {name!r} has dtype {stored.dtype}, expected one of {known}")
        return TensorInfo(shape, FORMAT_OF_DTYPE[stored.dtype], stored.size_bytes)

    def _packed_info(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        parts = [f"{_module(name)}.{part}" for part in (*PACKED_PARTS, SHAPE_PART)]
        missing = [part for part in parts if part not in self._stored]
        if missing:
            wanted = missing[0] if len(missing) < len(parts) else name
            raise InputError(f"{self.path}: tensor {wanted!r} is missing; the files are not those of {CONFIG}")
        stored = self._part(name, SHAPE_PART)
        stored_shape = tuple(_read(stored).view("<i8").tolist()) if stored.dtype == "I64" else stored.dtype
        if stored_shape != shape or len(shape) != 2:
            raise InputError(f"{self.path}: {_module(name)} has weight_shape {stored_shape}, {CONFIG} says {shape}")
        for fmt in self._formats:
            if self._holds(name, fmt, shape):
                return TensorInfo(shape, fmt.name, fmt.size_bytes(shape))
        known = ", ".join(fmt.name for fmt in self._formats) or "no format"
        raise InputError(f"{self.path}: the packed parts of {_module(name)} are not those of {known} in {shape}")

    def _holds(self, name: str, fmt: IntGroupFormat, shape: tuple[int, ...]) -> bool:
        num_rows, row_size = shape
        if fmt.group_size and row_size % fmt.group_size:
            return False
        wanted = {
            "weight_packed": (num_rows, packed_words(row_size, fmt.bits)),
            "weight_scale": (num_rows, fmt.num_groups(row_size)),
        }
        parts = {part: self._part(name, part) for part in PACKED_PARTS}
        return all(
            stored.shape == wanted[part] and stored.dtype == PACKED_PARTS[part] for part, stored in parts.items()
        )

    def _part(self, name: str, part: str) -> StoredTensor:
        return self._stored[f"{_module(name)}.{part}"]

    def _check_nothing_else(self) -> None:
        known = set(self.tensors)
        for name in self.tensors:
            if name not in self._stored:
                known |= {f"{_module(name)}.{part}" for part in (*PACKED_PARTS, SHAPE_PART)}
        for name, stored in self._stored.items():
            if name not in known and not is_leftover(name):
                raise InputError(f"{stored.path}: tensor {name!r} is none of this architecture's; it would be lost")


def _module(name: str) -> str:
    return name.removesuffix(".weight")


def _read(stored: StoredTensor) -> np.ndarray:
    return read_span(stored.path, stored.start, stored.size_bytes)
