"""Writes a Source as one GGUF file that llama.cpp loads, a tensor at a time."""

from collections import Counter
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from quant.artifacts.atomic import atomic_file
from quant.artifacts.f32_vectors import VECTOR_FORMAT
from quant.artifacts.gguf_config import metadata_from_config
from quant.artifacts.gguf_header import MAGIC
from quant.artifacts.gguf_reader import ROPE_FREQS
from quant.artifacts.gguf_rope import rows_to_pairs
from quant.artifacts.gguf_tokenizer import metadata_from_tokenizer
from quant.artifacts.progress import Progress, each_tensor
from quant.artifacts.tensor_hash import TensorHashes, hash_tensor
from quant.errors import InputError
from quant.formats import get_format
from quant.models import ModelConfig, expected_tensors
from quant.source import Source

# format of most weights -> general.file_type, llama.cpp's number for the whole file
FILE_TYPES = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "bf16": gguf.LlamaFileType.MOSTLY_BF16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    "q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
    "q5_0": gguf.LlamaFileType.MOSTLY_Q5_0,
    "q5_1": gguf.LlamaFileType.MOSTLY_Q5_1,
    "q4_k": gguf.LlamaFileType.MOSTLY_Q4_K_M,
    "q5_k": gguf.LlamaFileType.MOSTLY_Q5_K_M,
    "q6_k": gguf.LlamaFileType.MOSTLY_Q6_K,
}
_ADD = {
    bool: gguf.GGUFWriter.add_bool,
    int: gguf.GGUFWriter.add_uint32,
    float: gguf.GGUFWriter.add_float32,
    str: gguf.GGUFWriter.add_string,
    list: gguf.GGUFWriter.add_array,
}


def write_gguf(source: Source, path: Path, *, name: str, progress: Progress | None = None) -> TensorHashes:
    """Writes `path` whole or not at all; returns the sha256 of each tensor under its canonical name.

    source   with its vectors in float32, see `F32Vectors`
    name     general.name
    raises   InputError where GGUF has no type for a format or no word for the tokenizer, or `path` cannot be written
    """
    check_formats(source)
    config = ModelConfig.of(source)
    layout = _layout(source, config)
    hashes: TensorHashes = {}
    with atomic_file(path, replaces=is_gguf, needed_bytes=sum(size for _, _, _, size in layout)) as temp:
        writer = gguf.GGUFWriter(temp, config.architecture.gguf_arch)
        try:
            for key, value in _metadata(source, config, name).items():
                _ADD[type(value)](writer, key, value)
            for tensor, shape, fmt, size in layout:
                writer.add_tensor_info(tensor, shape, np.dtype(np.float32), size, gguf.GGMLQuantizationType(fmt))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            _write_tensors(source, config, writer, hashes, progress)
        finally:
            writer.close()
    return hashes


def check_formats(source: Source) -> None:
    """raises InputError if GGUF has no type for a format of the source."""
    for name, info in source.tensors.items():
        if get_format(info.format).gguf_type is None:
            raise InputError(
                f"GGUF has no type for {info.format} ({name}); write a Hugging Face directory (no .gguf suffix)"
            )
        if len(info.shape) == 1 and info.format != VECTOR_FORMAT:
            raise ValueError(f"{name} is {info.format}; llama.cpp needs vectors in {VECTOR_FORMAT}: use F32Vectors")


def is_gguf(path: Path) -> bool:
    """True for a file that starts as GGUF does, the only kind that is written over."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _metadata(source: Source, config: ModelConfig, name: str) -> dict[str, Any]:
    weights = Counter()
    for info in source.tensors.values():
        weights[info.format] += int(np.prod(info.shape, dtype=np.int64))
    return {
        "general.name": name,
        "general.file_type": int(FILE_TYPES[weights.most_common(1)[0][0]]),
        "general.quantization_version": gguf.GGML_QUANT_VERSION,
        **metadata_from_config(config),
        **metadata_from_tokenizer(source.tokenizer, config.vocab_size, source.spec),
    }


def _layout(source: Source, config: ModelConfig) -> list[tuple[str, tuple[int, ...], int, int]]:
    """(GGUF name, shape, ggml type, bytes) in the order of the file: RoPE factors first, then the source's order."""
    expected = expected_tensors(config)
    factors = _rope_factors(config)
    layout = [] if factors is None else [(ROPE_FREQS, factors.shape, 0, factors.nbytes)]
    for name, info in source.tensors.items():
        layout.append((expected[name].gguf_name, info.shape, get_format(info.format).gguf_type, info.size_bytes))
    return layout


def _rope_factors(config: ModelConfig) -> np.ndarray | None:
    """What GGUF keeps of a llama3 scaling, whose parameters it has no keys for."""
    return config.rope.frequency_divisors(config.head_dim) if config.rope.rope_type == "llama3" else None


def _write_tensors(
    source: Source, config: ModelConfig, writer: gguf.GGUFWriter, hashes: TensorHashes, progress: Progress | None
) -> None:
    expected = expected_tensors(config)
    factors = _rope_factors(config)
    if factors is not None:
        writer.write_tensor_data(factors)
    for name in each_tensor(source, progress):
        qtensor, heads = source.read(name), expected[name].heads
        if heads:
            qtensor = qtensor.take_rows(rows_to_pairs(qtensor.shape[0], heads))
        writer.write_tensor_data(qtensor.parts["blocks"])
        hashes[name] = hash_tensor(qtensor)
