"""Why a model's files cannot be opened: tensors that are missing, doubled or unknown."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from quant.artifacts.gguf_config import config_from_metadata
from quant.artifacts.gguf_header import read_names
from quant.artifacts.gguf_shards import shard_paths
from quant.artifacts.hf_reader import CONFIG
from quant.artifacts.hf_stored import without_prefix
from quant.artifacts.layouts import module_of, read_layout
from quant.doctor.findings import Finding
from quant.errors import InputError
from quant.json_file import read_json
from quant.models import ModelConfig, expected_tensors
from quant.regular_file import open_regular
from quant.safetensors.folder import weight_files
from quant.safetensors.header import LENGTH_BYTES, MAX_HEADER_BYTES
from quant.source import Source

CHECK = "structure"


def open_or_explain(path: Path, open_source: Callable[[str], Source]) -> tuple[Source | None, list[Finding]]:
    """The artifact; or None and its errors, if it is a model whose tensors are incomplete.

    raises   InputError for a path that is no model at all, or no known one
    """
    try:
        return open_source(str(path)), []
    except InputError as error:
        if path.is_dir():
            return None, _explain_hf(path, error)
        if path.is_file() and path.suffix == ".gguf":
            return None, _explain_gguf(path, error)
        raise


def _explain_gguf(path: Path, error: InputError) -> list[Finding]:
    """raises `error` again where the files have no tensor table, or are of an architecture that is not known"""
    tables = [read_names(shard) for shard in shard_paths(path)]
    shapes = {name: shape for table in tables for name, shape in table.tensors}
    names = [name for table in tables for name, _ in table.tensors]
    found = _doubled(names)
    if "token_embd.weight" not in shapes:
        return [*found, Finding(CHECK, "token_embd.weight", "the tensor is missing")]
    if "rope_freqs.weight" in shapes or not names:
        return found or [Finding(CHECK, path.name, str(error))]
    config = config_from_metadata(tables[0].metadata, shapes, None, str(path))
    expected = {want.gguf_name for want in expected_tensors(ModelConfig.from_hf(config, str(path))).values()}
    found += [Finding(CHECK, name, "the tensor is missing") for name in sorted(expected - set(names))]
    return found or [Finding(CHECK, path.name, str(error))]


def _explain_hf(path: Path, error: InputError) -> list[Finding]:
    """raises InputError where config.json is of no known model or layout, or a file of weights cannot be read"""
    config = read_json(path / CONFIG)
    model = ModelConfig.from_hf(config, str(path / CONFIG))
    read_layout(config, str(path / CONFIG))
    names = [name for file in weight_files(path) for name in _names(file, error)]
    found = _doubled(names)
    modules = {module for name in names for module in (name, name.rpartition(".")[0])}
    prefix = model.architecture.prefix
    left_away = prefix if without_prefix(names, prefix) else ""
    for name in dict.fromkeys(want.stored.name.removeprefix(left_away) for want in expected_tensors(model).values()):
        if name not in modules and (not name.endswith(".weight") or module_of(name) not in modules):
            found.append(Finding(CHECK, name, "the tensor is missing"))
    return found or [Finding(CHECK, path.name, str(error))]


def _names(file: Path, error: InputError) -> list[str]:
    """Names in a safetensors header, one that is there twice twice."""
    with open_regular(file) as opened:
        length = int.from_bytes(opened.read(LENGTH_BYTES), "little")
        if length > min(MAX_HEADER_BYTES, file.stat().st_size - LENGTH_BYTES):
            raise error
        raw = opened.read(length)
    try:
        pairs = json.loads(raw, object_pairs_hook=lambda pairs: pairs)
    except ValueError:
        raise error from None
    return [name for name, _ in pairs if name != "__metadata__"]


def _doubled(names: Iterable[str]) -> list[Finding]:
    return [
        Finding(CHECK, name, f"the tensor is there {count} times")
        for name, count in Counter(names).items()
        if count > 1
    ]
