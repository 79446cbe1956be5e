"""Writes a Source as a Hugging Face directory that transformers and the libraries of its layouts load."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from quant.artifacts.hf_kv_scales import kv_cache_scheme, kv_scale_tensors
from quant.artifacts.hf_reader import CONFIG
from quant.artifacts.hf_tokenizer import write_tokenizer
from quant.artifacts.layouts import FORMAT_OF_DTYPE, LAYOUTS, CompressedTensorsLayout, Layout, choose_packing, module_of
from quant.artifacts.progress import Progress, each_tensor
from quant.artifacts.safetensors_writer import SHARD_BYTES, Entry, SafetensorsWriter, safetensors_writer
from quant.artifacts.tensor_hash import TensorHashes, hash_tensor
from quant.errors import InputError
from quant.kv.scheme import CONFIG_KEY as KV_KEY
from quant.models import EMBEDDING, ModelConfig
from quant.qtensor import QTensor
from quant.source import Source, TensorInfo

DTYPE_OF_FORMAT = {fmt: dtype for dtype, fmt in FORMAT_OF_DTYPE.items()}
TORCH_DTYPE = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def write_hf(
    source: Source,
    folder: Path,
    *,
    packing: str | None = None,
    progress: Progress | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> TensorHashes:
    """Fills an empty `folder`; returns the sha256 of each tensor under its canonical name.

    packing  a row of layouts.LAYOUTS for the quantized linears; None: the source's own, or one that holds its formats
    raises   InputError where the directory has no place for a format
    """
    layout = layout_for(source, packing)
    config, kv_scales = _config_and_kv_scales(source, layout)
    (folder / CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if source.tokenizer is not None:
        write_tokenizer(folder, source.tokenizer, source.config["max_position_embeddings"])
    hashes: TensorHashes = {}
    groups = [_entries(name, info, layout) for name, info in source.tensors.items()]
    groups += [[entry] for entry in kv_scales]
    with safetensors_writer(folder, groups, shard_bytes) as writer:
        for name in each_tensor(source, progress):
            qtensor = source.read(name)
            _write(writer, name, qtensor, layout)
            hashes[name] = hash_tensor(qtensor)
        for entry, scale in kv_scales.items():
            writer.write(entry.name, scale)
    return hashes


def layout_for(source: Source, packing: str | None = None) -> Layout:
    """The layout of the source's linears, all of whose formats are checked to have a place.

    raises   InputError, naming the tensor, for one that has none
    """
    layout = LAYOUTS[packing or choose_packing(source)]
    linears = {}
    for name, info in source.tensors.items():
        if _is_linear(name, info):
            linears[name] = info
        elif info.format not in DTYPE_OF_FORMAT:
            raise InputError(f"a Hugging Face directory holds {info.format} in linears alone, and {name} is none")
    return layout.of_tensors(linears)


def _is_linear(name: str, info: TensorInfo) -> bool:
    return len(info.shape) == 2 and name != EMBEDDING


def _config_and_kv_scales(source: Source, layout: Layout) -> tuple[dict[str, Any], dict[Entry, np.ndarray]]:
    """config.json, and the tensors that keep the scales it leaves out."""
    config = {key: value for key, value in source.config.items() if key != "quantization_config"}
    config["torch_dtype"] = TORCH_DTYPE[source.tensors[EMBEDDING].format]
    scheme = kv_cache_scheme(config) if isinstance(layout, CompressedTensorsLayout) else None
    scales = {} if scheme is None else kv_scale_tensors(config, ModelConfig.of(source))
    if scales:
        config[KV_KEY] = {"format": config[KV_KEY]["format"]}
    if scales or any(info.format not in DTYPE_OF_FORMAT for info in source.tensors.values()):
        config["quantization_config"] = layout.config() | ({"kv_cache_scheme": scheme} if scales else {})
    return config, scales


def _entries(name: str, info: TensorInfo, layout: Layout) -> list[Entry]:
    if info.format in DTYPE_OF_FORMAT:
        return [Entry(name, DTYPE_OF_FORMAT[info.format], info.shape)]
    return [Entry(f"{module_of(name)}.{part.name}", part.dtype, part.shape) for part in layout.parts(info)]


def _write(writer: SafetensorsWriter, name: str, qtensor: QTensor, layout: Layout) -> None:
    if qtensor.format in DTYPE_OF_FORMAT:
        writer.write(name, qtensor.parts["blocks"])
        return
    for part, array in layout.pack(qtensor).items():
        writer.write(f"{module_of(name)}.{part}", array)
