"""Writes a Source as a Hugging Face directory that transformers and compressed-tensors load."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from quant.artifacts.compressed_tensors import PACKED_PARTS, SHAPE_PART, quantization_config
from quant.artifacts.hf_reader import CONFIG, FORMAT_OF_DTYPE
from quant.artifacts.hf_tokenizer import write_tokenizer
from quant.artifacts.progress import Progress, each_tensor
from quant.artifacts.safetensors_writer import SHARD_BYTES, Entry, SafetensorsWriter, safetensors_writer
from quant.artifacts.tensor_hash import TensorHashes, hash_tensor
from quant.errors import InputError
from quant.formats import IntGroupFormat, get_format
from quant.formats.int_packing import packed_words
from quant.models import EMBEDDING
from quant.qtensor import QTensor
from quant.source import Source

DTYPE_OF_FORMAT = {fmt: dtype for dtype, fmt in FORMAT_OF_DTYPE.items()}
TORCH_DTYPE = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def write_hf(
    source: Source, folder: Path, *, progress: Progress | None = None, shard_bytes: int = SHARD_BYTES
) -> TensorHashes:
    """Fills an empty `folder`; returns the sha256 of each tensor under its canonical name.

    raises   InputError where the directory has no place for a format
    """
    check_formats(source)
    (folder / CONFIG).write_text(json.dumps(hf_config(source), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if source.tokenizer is not None:
        write_tokenizer(folder, source.tokenizer, source.config["max_position_embeddings"])
    hashes: TensorHashes = {}
    groups = [_entries(name, info.shape, info.format) for name, info in source.tensors.items()]
    with safetensors_writer(folder, groups, shard_bytes) as writer:
        for name in each_tensor(source, progress):
            qtensor = source.read(name)
            _write(writer, name, qtensor)
            hashes[name] = hash_tensor(qtensor)
    return hashes


def check_formats(source: Source) -> None:
    """raises InputError if a Hugging Face directory has no place for a format of the source."""
    for name, info in source.tensors.items():
        packed = isinstance(get_format(info.format), IntGroupFormat)
        if not packed and info.format not in DTYPE_OF_FORMAT:
            raise InputError(f"a Hugging Face directory cannot hold {info.format} ({name}); write a .gguf file")
        if packed and (name == EMBEDDING or len(info.shape) != 2):
            raise InputError(f"compressed-tensors packs linears alone, and {name} is none; give it a float format")


def hf_config(source: Source) -> dict[str, Any]:
    """The source's config.json with the dtype of its float tensors and, where weights are packed, their scheme."""
    config = {key: value for key, value in source.config.items() if key not in ("quantization_config", "dtype")}
    config["torch_dtype"] = TORCH_DTYPE[source.tensors[EMBEDDING].format]
    linears = {name: info.format for name, info in source.tensors.items() if len(info.shape) == 2 and name != EMBEDDING}
    if any(isinstance(get_format(fmt), IntGroupFormat) for fmt in linears.values()):
        config["quantization_config"] = quantization_config(linears)
    return config


def _entries(name: str, shape: tuple[int, ...], fmt: str) -> list[Entry]:
    codec = get_format(fmt)
    if not isinstance(codec, IntGroupFormat):
        return [Entry(name, DTYPE_OF_FORMAT[fmt], shape)]
    num_rows, row_size = shape
    shapes = {
        "weight_packed": (num_rows, packed_words(row_size, codec.bits)),
        "weight_scale": (num_rows, codec.num_groups(row_size)),
    }
    entries = [Entry(_part_name(name, part), dtype, shapes[part]) for part, dtype in PACKED_PARTS.items()]
    return [*entries, Entry(_part_name(name, SHAPE_PART), "I64", (2,))]


def _write(writer: SafetensorsWriter, name: str, qtensor: QTensor) -> None:
    if "blocks" in qtensor.parts:
        writer.write(name, qtensor.parts["blocks"])
        return
    for part, array in qtensor.parts.items():
        writer.write(_part_name(name, part), array)
    writer.write(_part_name(name, SHAPE_PART), np.array(qtensor.shape, dtype="<i8"))


def _part_name(name: str, part: str) -> str:
    return f"{name.removesuffix('.weight')}.{part}"
