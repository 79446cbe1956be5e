"""The manifest: the origin of an artifact and its contents, tensor by tensor.

It is inside a directory as `qbench.json` and next to a GGUF file, or the first of its shards, as
`NAME.gguf.qbench.json`. Not inside the GGUF file: metadata precedes the data there, and hashes are known only after
the data has streamed past; and so the file stays byte for byte the same whichever version of which library wrote it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from quant.artifacts.digests import BLANK, MANIFEST, changed_files, sealed
from quant.artifacts.gguf_shards import first_shard
from quant.artifacts.next_manifest import settle
from quant.calibrated import Calibration, ExpertTokens, TextCalibration
from quant.errors import InputError
from quant.json_data import JsonData, JsonRow
from quant.json_file import read_json
from quant.qtensor import QTensor
from quant.recipes import Recipe
from quant.sizes import SizeSummary, size_summary
from quant.source import Source
from quant.stage import Stage

TensorHashes = dict[str, str]  # canonical tensor name -> sha256 hex of its parts as the artifact stores them


def hash_tensor(qtensor: QTensor) -> str:
    """sha256 hex over the bytes of the parts in order, then of the shared arrays."""
    digest = hashlib.sha256()
    for array in (*qtensor.parts.values(), *qtensor.shared.values()):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


SCHEMA = 2  # from which on a manifest has `files` and `digest`
VERSIONS_OF = ("qbench-llm", "numpy", "torch", "gguf", "tokenizers")


def manifest_path(artifact: Path) -> Path:
    """Path of the manifest of an artifact, whether it exists or not."""
    if artifact.suffix != ".gguf":
        return artifact / MANIFEST
    return artifact.with_name(f"{first_shard(artifact).name}.{MANIFEST}")


def current_manifest(artifact: Path) -> Path:
    """As `manifest_path`, after a run that was killed before its manifest got its name."""
    path = manifest_path(artifact)
    return settle(first_shard(artifact), path) if artifact.suffix == ".gguf" else path


@dataclass(frozen=True, slots=True)
class ManifestSource(JsonData):
    """The model before the recipe."""

    spec: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ManifestTensor(JsonRow):
    """One tensor as it was written."""

    format: str
    shape: tuple[int, ...]
    size_bytes: int | None = None
    sha256: str = field(kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated(JsonRow):
    """The calibration and its outcome.

    experts   layer -> tokens that reached its experts; None for a model without experts
    remarks   name of a weight -> remark of its method
    """

    json_flat = ("by",)

    by: Calibration | None
    experts: Mapping[str, ExpertTokens] | None = None
    remarks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(JsonRow):
    """The document next to an artifact; `lacks` names the keys that an older document does not have.

    recipe_document   the whole document of a recipe that the user wrote
    options           of the method
    seed              None without calibration, since nothing is drawn then
    files, digest     sha256 of every file's bytes, and of the manifest's own: see `digests`
    """

    json_flat = ("size",)

    schema: int = SCHEMA
    recipe: str | None
    recipe_document: Mapping[str, Any] | None = None
    method: str | None
    options: Mapping[str, Any] | None = None
    kv: str | None = None
    calibration: Calibrated | None = None
    seed: int | None = None
    container: str = ""
    source: ManifestSource
    versions: Mapping[str, str | None] = field(default_factory=dict)
    size: SizeSummary | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    digest: str = BLANK
    tensors: Mapping[str, ManifestTensor]

    @property
    def has_digests(self) -> bool:
        """False for a manifest from before they were written; one that lost a part of them has them."""
        return self.schema >= SCHEMA or not {"files", "digest"} <= self.lacks


def build_manifest(
    source: Source,
    origin: ManifestSource,
    hashes: TensorHashes,
    recipe: Recipe | None,
    container: str,
    stage: Stage | None = None,
    *,
    files: Mapping[str, str],
) -> Manifest:
    """The manifest of an artifact.

    source   as written
    recipe   None for a plain copy
    stage    of a calibrated recipe
    files    digests of its files
    """
    by = None if stage is None else stage.key.calibration
    calibration = None
    if stage is not None:
        calibration = Calibrated(by=by, experts=stage.notes.experts or None, remarks=stage.notes.remarks)
    return Manifest(
        recipe=None if recipe is None else recipe.name,
        recipe_document=None if recipe is None else recipe.source,
        method=None if recipe is None else recipe.method,
        options=None if recipe is None else dict(recipe.options),
        kv=None if recipe is None else recipe.kv,
        calibration=calibration,
        seed=by.seed if isinstance(by, TextCalibration) else None,
        container=container,
        source=origin,
        versions=versions(),
        size=size_summary(source.tensors),
        files=files,
        tensors={
            name: ManifestTensor(info.format, info.shape, info.size_bytes, sha256=hashes[name])
            for name, info in source.tensors.items()
        },
    )


def manifest_text(manifest: Manifest) -> str:
    return sealed(json.dumps(manifest.to_json(), indent=1, default=str) + "\n")  # YAML reads some words as dates


def changes(artifact: Path, manifest: Manifest) -> dict[str, str]:
    """File -> difference, of those whose bytes are not the ones that were written; {} for a manifest without digests"""
    if not manifest.has_digests:
        return {}
    return dict(changed_files(artifact, current_manifest(artifact), dict(manifest.files), manifest.digest))


def read_manifest(artifact: Path) -> Manifest | None:
    """The manifest of an artifact, or None if it does not exist. raises InputError if it is damaged"""
    path = current_manifest(artifact)
    if not path.is_file():
        return None
    document = read_json(path)
    try:
        manifest = Manifest.from_json(document)
        if manifest.schema < 1:
            raise ValueError(f"schema {manifest.schema}, expected 1 or more")
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: its manifest is not whole ({error}); remove it, or quantize again") from error
    return manifest


def versions() -> dict[str, str | None]:
    """Package -> the version that makes artifacts here"""
    return {name: _version(name) for name in VERSIONS_OF}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return None
