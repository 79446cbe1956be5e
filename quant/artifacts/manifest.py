"""The manifest: how an artifact came to be and what is in it, tensor by tensor.

It lies inside a directory as `qbench.json` and beside a GGUF file, or the first of its shards, as
`NAME.gguf.qbench.json`. Not inside the GGUF file: metadata precedes the data there, and hashes are known only after
the data has streamed past; and so the file stays byte for byte the same whichever version of which library wrote it.
"""

import json
from importlib import metadata
from pathlib import Path
from typing import Any

from quant.artifacts.gguf_shards import first_shard
from quant.artifacts.tensor_hash import TensorHashes
from quant.atomic import atomic_file
from quant.json_file import read_json
from quant.recipes import Recipe
from quant.sizes import size_summary
from quant.source import Source
from quant.stage import Stage

MANIFEST = "qbench.json"
SCHEMA = 1
VERSIONS_OF = ("qbench-llm", "numpy", "torch", "gguf", "tokenizers")


def manifest_path(artifact: Path) -> Path:
    """Where the manifest of an artifact lies, whether it exists or not."""
    if artifact.suffix != ".gguf":
        return artifact / MANIFEST
    return artifact.with_name(f"{first_shard(artifact).name}.{MANIFEST}")


def build_manifest(
    source: Source,
    origin: dict[str, str],
    hashes: TensorHashes,
    recipe: Recipe | None,
    container: str,
    stage: Stage | None = None,
) -> dict[str, Any]:
    """What is written beside an artifact.

    source   as written
    origin   {spec, fingerprint} before the recipe
    recipe   None for a plain copy; of one that the user wrote, the manifest has the whole document
    stage    of a calibrated recipe
    """
    calibration = None
    if stage is not None:
        kept = {"experts": stage.notes.get("experts"), "remarks": stage.notes.get("remarks", {})}
        calibration = stage.notes["calibration"] | kept
    return {
        "schema": SCHEMA,
        "recipe": None if recipe is None else recipe.name,
        "recipe_document": None if recipe is None else recipe.source,
        "method": None if recipe is None else recipe.method,
        "options": None if recipe is None else dict(recipe.options),
        "kv": None if recipe is None else recipe.kv,
        "calibration": calibration,
        "seed": None if calibration is None else calibration.get("seed"),  # without calibration nothing is drawn
        "container": container,
        "source": origin,
        "versions": versions(),
        **size_summary(source.tensors),
        "tensors": {
            name: {
                "format": info.format,
                "shape": list(info.shape),
                "size_bytes": info.size_bytes,
                "sha256": hashes[name],
            }
            for name, info in source.tensors.items()
        },
    }


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    with atomic_file(path) as temp:
        temp.write_text(json.dumps(manifest, indent=1, default=str) + "\n")  # YAML reads some words as dates


def read_manifest(artifact: Path) -> dict[str, Any] | None:
    """The manifest of an artifact, or None where it has none. raises InputError if it is damaged."""
    path = manifest_path(artifact)
    return read_json(path) if path.is_file() else None


def versions() -> dict[str, str | None]:
    """Package -> the version that makes artifacts here"""
    return {name: _version(name) for name in VERSIONS_OF}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return None
