"""From a model to files: its container, and everything that goes into it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quant.artifacts import gguf_writer, hf_writer
from quant.artifacts.digests import MANIFEST, digests_of_folder, digests_of_shards
from quant.artifacts.f32_vectors import F32Vectors
from quant.artifacts.gguf_general import general_metadata
from quant.artifacts.gguf_shards import shards_named
from quant.artifacts.manifest import ManifestSource, TensorHashes, build_manifest, manifest_path, manifest_text
from quant.artifacts.next_manifest import settle, write_next
from quant.artifacts.output import choose_output, is_artifact_dir
from quant.artifacts.progress import Progress
from quant.atomic import atomic_dir
from quant.job import Output
from quant.quantize import QuantizedSource
from quant.recipes import Recipe
from quant.source import Source
from quant.stage import Stage


def write_artifact(model: QuantizedSource, progress: Progress | None = None) -> Path:
    """Writes the model to its job's output; returns the path of the artifact, which for shards is the first.

    A GGUF file's manifest is written before the file gets its name, so every file has its own: `next_manifest`.
    progress   called with bytes done, bytes in all, tensor name
    raises     InputError, and leaves nothing half-written
    """
    job = model.job
    if job.output is None:
        raise ValueError(f"the job of {job.source.spec} by {job.recipe.name} has no output; see make_artifact_job")
    return _write(model, job.output, _Origin(job.original, job.recipe, model.stage), progress)


def copy_artifact(
    source: Source, out: str | Path, *, progress: Progress | None = None, max_shard_bytes: int | None = None
) -> Path:
    """Writes the model as it is, in the container that `choose_output` finds; otherwise as `write_artifact`."""
    return _write(source, choose_output(source, out, None, max_shard_bytes), _Origin(source), progress)


@dataclass(frozen=True, slots=True)
class _Origin:
    """How the written model came to be.

    source  the model as it was
    recipe  None for a plain copy
    stage   of a calibrated recipe
    """

    source: Source
    recipe: Recipe | None = None
    stage: Stage | None = None

    def entry(self) -> ManifestSource:
        """The manifest's entry on the source."""
        return ManifestSource(self.source.spec, self.source.fingerprint())


def _write(source: Source, output: Output, origin: _Origin, progress: Progress | None) -> Path:
    output.make_folder()
    write = _write_gguf if output.container == "gguf" else _write_hf
    return write(source, output, origin, progress)


def _write_gguf(source: Source, output: Output, origin: _Origin, progress: Progress | None) -> Path:
    source = F32Vectors(source)
    entry = origin.entry()  # before the output is written, which may be the source's own file
    calibration = None if origin.stage is None else origin.stage.key.calibration

    def seal(temps: Sequence[Path], hashes: TensorHashes) -> None:
        temp, files = temps[0], digests_of_shards(temps)
        manifest = build_manifest(source, entry, hashes, origin.recipe, "gguf", origin.stage, files=files)
        write_next(temp, manifest_path(_written(output, temp)), manifest_text(manifest))

    gguf_writer.write_gguf(
        source,
        output.path,
        name=_model_name(origin.source.spec),
        metadata=general_metadata(origin.source, origin.recipe, calibration),
        progress=progress,
        max_shard_bytes=output.max_shard_bytes,
        seal=seal,
    )
    written = output.path if output.max_shard_bytes is None else shards_named(output.path)[0]
    settle(written, manifest_path(written))
    return written


def _written(output: Output, temp: Path) -> Path:
    """The name that a temporary file will get; shards have their own name already, in another folder."""
    return output.path if output.max_shard_bytes is None else output.path.with_name(temp.name)


def _write_hf(source: Source, output: Output, origin: _Origin, progress: Progress | None) -> Path:
    packing = None if origin.recipe is None else origin.recipe.packing
    hf_writer.layout_for(source, packing)
    needed_bytes = sum(info.size_bytes for info in source.tensors.values())
    with atomic_dir(output.path, replaces=is_artifact_dir, needed_bytes=needed_bytes) as folder:
        hashes = hf_writer.write_hf(source, folder, packing=packing, progress=progress)
        files = digests_of_folder(folder)
        manifest = build_manifest(source, origin.entry(), hashes, origin.recipe, "hf", origin.stage, files=files)
        (folder / MANIFEST).write_text(manifest_text(manifest), encoding="utf-8")
    return output.path


def _model_name(spec: str) -> str:
    """general.name: the last word of the spec, in UTF-8 also where the locale has another encoding."""
    name = Path(spec).name.removesuffix(".gguf") or spec
    return os.fsencode(name).decode("utf-8", "replace")
