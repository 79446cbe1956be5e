"""Writes a Source as a Hugging Face directory that transformers and the libraries of its layouts load."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from quant.artifacts.hf_kv_scales import kv_cache_scheme, kv_scale_tensors
from quant.artifacts.hf_reader import CONFIG
from quant.artifacts.hf_stored import StoredTensor, stored_tensors, to_file, transposed
from quant.artifacts.hf_tokenizer import write_tokenizer
from quant.artifacts.layouts import (
    FORMAT_OF_DTYPE,
    LAYOUTS,
    CompressedTensorsLayout,
    Layout,
    RotatedLayout,
    choose_packing,
    module_of,
    with_own_names,
)
from quant.artifacts.manifest import TensorHashes, hash_tensor
from quant.artifacts.progress import Progress, each_tensor
from quant.errors import InputError
from quant.kv.scheme import CONFIG_KEY as KV_KEY
from quant.models import EMBEDDING, POSITIONS, ModelConfig
from quant.models.online import online_rotations
from quant.qtensor import QTensor
from quant.safetensors.writer import SHARD_BYTES, Entry, SafetensorsWriter, safetensors_writer
from quant.source import Source

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
        write_tokenizer(folder, source.tokenizer, ModelConfig.of(source).max_positions)
    hashes: TensorHashes = {}
    stored = stored_tensors(source)
    groups = [_entries(name, tensor, layout) for name, tensor in stored.items()]
    groups += [[entry] for entry in kv_scales]
    names = [name for tensor in stored.values() for name in tensor.members]
    with safetensors_writer(folder, groups, shard_bytes) as writer:
        told = each_tensor(source, progress, names)
        for name, tensor in stored.items():
            members = {member: source.read(member) for member in islice(told, len(tensor.members))}
            _write(writer, name, tensor, to_file(tensor, list(members.values())), layout)
            hashes |= {member: hash_tensor(qtensor) for member, qtensor in members.items()}
        next(told, None)  # the last tensor's progress is reported when another is asked for
        for entry, scale in kv_scales.items():
            writer.write(entry.name, scale)
    return hashes


def layout_for(source: Source, packing: str | None = None) -> Layout:
    """The layout of the source's linears, all of whose formats are checked to have a place.

    raises   InputError, naming the tensor, for one without a name
    """
    if online_rotations(source.config):
        packing = RotatedLayout.quant_method
    layout = LAYOUTS[packing or choose_packing(source)]
    linears = {}
    for name, tensor in stored_tensors(source).items():
        if _is_linear(tensor):
            linears[name] = tensor.info
        elif tensor.info.format not in DTYPE_OF_FORMAT:
            raise InputError(
                f"a Hugging Face directory holds {tensor.info.format} in linears alone, and {name} is none"
            )
    return layout.of_tensors(linears)


def _is_linear(tensor: StoredTensor) -> bool:
    return len(tensor.info.shape) == 2 and tensor.members[0] not in (EMBEDDING, POSITIONS)


def _config_and_kv_scales(source: Source, layout: Layout) -> tuple[dict[str, Any], dict[Entry, np.ndarray]]:
    """config.json, and the tensors that keep the scales it leaves out."""
    config = {key: value for key, value in source.config.items() if key != "quantization_config"}
    config.pop("dtype", None)  # the name of transformers 5, which reads the older one as well
    config["torch_dtype"] = TORCH_DTYPE[source.tensors[EMBEDDING].format]
    scheme = kv_cache_scheme(config) if isinstance(layout, CompressedTensorsLayout) else None
    scales = {} if scheme is None else kv_scale_tensors(config, ModelConfig.of(source))
    if scales:
        config[KV_KEY] = {"format": config[KV_KEY]["format"]}
    is_own = isinstance(layout, RotatedLayout)
    if is_own:
        config = with_own_names(config)
    if is_own or scales or any(info.format not in DTYPE_OF_FORMAT for info in source.tensors.values()):
        config["quantization_config"] = {**layout.config(), **({"kv_cache_scheme": scheme} if scales else {})}
    return config, scales


def _entries(name: str, tensor: StoredTensor, layout: Layout) -> list[Entry]:
    info = tensor.info
    if info.format in DTYPE_OF_FORMAT:
        return [Entry(name, DTYPE_OF_FORMAT[info.format], tensor.file_shape)]
    return [Entry(f"{module_of(name)}.{part.name}", part.dtype, part.shape) for part in layout.parts(info)]


def _write(writer: SafetensorsWriter, name: str, tensor: StoredTensor, qtensor: QTensor, layout: Layout) -> None:
    if qtensor.format in DTYPE_OF_FORMAT:
        writer.write(name, (transposed(qtensor) if tensor.is_transposed else qtensor).parts["blocks"])
        return
    for part, array in layout.pack(qtensor).items():
        writer.write(f"{module_of(name)}.{part}", array)
