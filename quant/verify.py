"""Whether an artifact matches its manifest: made again from the same source, it has the same bits."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from quant.artifacts.f32_vectors import F32Vectors
from quant.artifacts.manifest import Manifest, hash_tensor, read_manifest
from quant.errors import InputError
from quant.kv import KVScheme
from quant.kv.scheme import CONFIG_KEY as KV_KEY
from quant.models import ModelConfig
from quant.recipes import Recipe, get_recipe
from quant.recipes.yaml_recipe import recipe_from
from quant.source import Source

Progress = Callable[[int, int, str], None]  # tensors done, tensors in all, name
# The keys that a manifest must have, so that the artifact can be made again from it.
KEYS = ("recipe", "recipe_document", "method", "options", "kv", "calibration", "container", "source", "versions")


def manifest_of(path: Path) -> Manifest:
    """raises InputError for an artifact without a manifest, or with one that does not say how it was made"""
    manifest = read_manifest(path)
    if manifest is None:
        raise InputError(f"{path} has no manifest, so nothing says how it was made; try qbench doctor")
    missing = [key for key in KEYS if key in manifest.lacks]
    if manifest.calibration is not None and manifest.calibration.by is None:
        missing.append("the text of its calibration")
    if missing:
        raise InputError(f"{path}: its manifest lacks {', '.join(missing)}; quantize again")
    return manifest


def recipe_of(manifest: Manifest) -> Recipe | None:
    """The recipe that a manifest names or holds; None for a plain copy.

    raises   InputError for a recipe that this version does not know
    """
    name, document = manifest.recipe, manifest.recipe_document
    if name is None:
        return None
    recipe = get_recipe(name) if document is None else recipe_from(document, name)
    if recipe.method != manifest.method:
        raise InputError(f"recipe {name} is now by {recipe.method}, the artifact was made by {manifest.method}")
    return replace(recipe, options=manifest.options or {}).in_container(manifest.container)


def check_source(source: Source, manifest: Manifest) -> None:
    """raises InputError unless this is the model that the artifact was made from"""
    wanted = manifest.source.fingerprint
    if source.fingerprint() != wanted:
        raise InputError(
            f"{source.spec} is not the model that the artifact was made from, or has changed: its fingerprint is "
            f"{source.fingerprint()[:12]}, the manifest's {wanted[:12]}; name the right one with --source"
        )


def differences(
    artifact: Source, remade: Source, container: str, progress: Progress | None = None
) -> Iterator[tuple[str, str]]:
    """(name, difference) of every tensor whose bytes differ, and of the KV scheme; one tensor at a time.

    remade   as the recipe makes it, before it is written into a container
    """
    remade = F32Vectors(remade) if container == "gguf" else remade
    names = dict.fromkeys((*artifact.tensors, *remade.tensors))
    for index, name in enumerate(names):
        if progress is not None:
            progress(index, len(names), name)
        info, wanted = artifact.tensors.get(name), remade.tensors.get(name)
        if info is None or wanted is None:
            yield name, "the artifact has it not" if info is None else "the recipe makes no such tensor"
        elif info.format != wanted.format:
            yield name, f"it is {info.format}, the recipe makes {wanted.format}"
        elif hash_tensor(artifact.read(name)) != hash_tensor(remade.read(name)):
            yield name, "its bytes differ"
    if not _same_scheme(artifact, remade):
        yield KV_KEY, "the scheme of keys and values differs"


def _same_scheme(artifact: Source, remade: Source) -> bool:
    ours, theirs = (KVScheme.of(source.config, ModelConfig.of(source), source.spec) for source in (artifact, remade))
    if ours is None or theirs is None:
        return ours is theirs
    scales = (ours.k_scale, theirs.k_scale), (ours.v_scale, theirs.v_scale)
    return ours.format == theirs.format and all(_same_scale(a, b) for a, b in scales)


def _same_scale(ours: np.ndarray | None, theirs: np.ndarray | None) -> bool:
    return ours is theirs if ours is None or theirs is None else np.array_equal(ours, theirs)
