"""Artifacts in one call: for recipes without calibration, and plain copies."""

from pathlib import Path

from quant import artifacts
from quant.quantize import QuantizedSource
from quant.recipes import Recipe
from quant.source import Source


def write_artifact(
    source: Source, out: str | Path, *, recipe: Recipe | None = None, progress=None, max_shard_bytes: int | None = None
) -> Path:
    """Writes the model as the recipe says, or as it is; returns the path of the artifact."""
    if recipe is None:
        return artifacts.copy_artifact(source, out, progress=progress, max_shard_bytes=max_shard_bytes)
    job = artifacts.make_artifact_job(source, recipe, out, max_shard_bytes)
    return artifacts.write_artifact(QuantizedSource(job), progress)
