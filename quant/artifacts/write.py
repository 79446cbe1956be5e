"""From a source to files: which container, and everything that goes into it."""

from pathlib import Path

from quant.artifacts import gguf_writer, hf_writer
from quant.artifacts.f32_vectors import F32Vectors
from quant.artifacts.gguf_general import file_name, general_metadata
from quant.artifacts.gguf_shards import SHARD_NAME, shards_named
from quant.artifacts.manifest import MANIFEST, build_manifest, manifest_path, write_manifest
from quant.artifacts.progress import Progress
from quant.atomic import atomic_dir, check_target
from quant.errors import InputError
from quant.formats import get_format
from quant.quantize import QuantizedSource, foreseen_tensors
from quant.recipes import Recipe
from quant.source import Source, SourceView
from quant.stage import Stage


def write_artifact(
    source: Source,
    out: str | Path,
    *,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
    max_shard_bytes: int | None = None,
    stage: Stage | None = None,
) -> Path:
    """Writes the model as `recipe` says, or as it is; returns the path of the artifact.

    A name that ends in .gguf asks for a GGUF file; otherwise the recipe's container decides, and without a recipe
    the formats do. The manifest is written last: an artifact that has one is whole.
    out               the file or directory to make; replaced if it is an artifact, refused if it is something else.
                      For a GGUF file also the folder to make it in, under the name that GGUF's convention gives it
    progress          called with bytes done, bytes in all, tensor name
    max_shard_bytes   of tensors in one GGUF file: NAME.gguf becomes NAME-00001-of-0000N.gguf, whose first is returned
    stage             where a calibrated recipe's layers lie, quantized for the container that `out` will be
    raises            InputError, and leaves nothing half-written
    """
    out = prepare_output(source, out, recipe)
    container = container_of(source, out, recipe)
    if max_shard_bytes is not None and container != "gguf":
        raise InputError(f"{out}: shards of a given size are for GGUF files; write to a name that ends in .gguf")
    original = source
    if recipe is not None:
        source = QuantizedSource(source, recipe.in_container(container), stage)
    if container == "gguf":
        return _write_gguf(source, original, out, recipe, progress, max_shard_bytes, stage)
    _write_hf(source, original, out, recipe, progress, stage)
    return out


def artifact_path(source: Source, out: str | Path, recipe: Recipe | None) -> Path:
    """The file or directory that `out` means. raises InputError for a name that a GGUF file cannot have"""
    path = Path(out)
    if container_of(source, path, recipe) != "gguf":
        return path
    if path.suffix != ".gguf":
        if not path.is_dir() and not str(out).endswith("/"):
            raise InputError(f"{path}: a GGUF file's name ends in .gguf; write to {path}.gguf")
        return path / file_name(source, recipe)
    match = SHARD_NAME.fullmatch(path.name)
    if match is not None:
        raise InputError(f"{path} is the name of one shard of several; write to {match['stem']}.gguf")
    return path


def prepare_output(source: Source, out: str | Path, recipe: Recipe | None) -> Path:
    """The path of the artifact, in a folder that is made where a name for it was left to us.

    raises   InputError where no artifact can be written: to be told before a long calibration, not after
    """
    if str(out).endswith("/") and container_of(source, Path(out), recipe) == "gguf":
        Path(out).mkdir(exist_ok=True)
    path = artifact_path(source, out, recipe)
    is_gguf = container_of(source, path, recipe) == "gguf"
    check_target(path, gguf_writer.is_gguf if is_gguf else _is_artifact_dir)
    if recipe is not None and not is_gguf:
        view = SourceView(source)
        view.tensors = foreseen_tensors(source, recipe)
        hf_writer.layout_for(view, recipe.packing)
    return path


def replaced_files(path: Path, max_shard_bytes: int | None) -> list[Path]:
    """The existing files or directory that writing to `path` would replace."""
    if max_shard_bytes is not None:
        return shards_named(path)
    return [path] if path.exists() else []


def container_of(source: Source, out: Path, recipe: Recipe | None) -> str:
    """ "gguf" or "hf": the kind of artifact that `out` will be."""
    if out.suffix == ".gguf":
        return "gguf"
    if recipe is not None:
        return recipe.container
    float_dtypes = hf_writer.DTYPE_OF_FORMAT
    as_hf = all(
        info.format in float_dtypes or get_format(info.format).gguf_type is None for info in source.tensors.values()
    )
    return "hf" if as_hf else "gguf"


def _write_gguf(
    source: Source,
    original: Source,
    out: Path,
    recipe: Recipe | None,
    progress: Progress | None,
    max_shard_bytes: int | None,
    stage: Stage | None,
) -> Path:
    source = F32Vectors(source)
    # Asked for before `out` is written: it may be the original's own file.
    origin = {"spec": original.spec, "fingerprint": original.fingerprint()}
    metadata = general_metadata(original, recipe, None if stage is None else stage.notes["calibration"])
    hashes = gguf_writer.write_gguf(
        source,
        out,
        name=_model_name(original.spec),
        metadata=metadata,
        progress=progress,
        max_shard_bytes=max_shard_bytes,
    )
    written = out if max_shard_bytes is None else shards_named(out)[0]
    manifest_path(written).unlink(missing_ok=True)  # an old one speaks of the file that is gone
    write_manifest(manifest_path(written), build_manifest(source, origin, hashes, recipe, "gguf", stage))
    return written


def _write_hf(
    source: Source,
    original: Source,
    out: Path,
    recipe: Recipe | None,
    progress: Progress | None,
    stage: Stage | None,
) -> None:
    packing = None if recipe is None else recipe.packing
    hf_writer.layout_for(source, packing)
    needed_bytes = sum(info.size_bytes for info in source.tensors.values())
    with atomic_dir(out, replaces=_is_artifact_dir, needed_bytes=needed_bytes) as folder:
        hashes = hf_writer.write_hf(source, folder, packing=packing, progress=progress)
        origin = {"spec": original.spec, "fingerprint": original.fingerprint()}
        write_manifest(folder / MANIFEST, build_manifest(source, origin, hashes, recipe, "hf", stage))


def _is_artifact_dir(path: Path) -> bool:
    """True for what was written here, and for an empty directory."""
    return path.is_dir() and not path.is_symlink() and ((path / MANIFEST).is_file() or not any(path.iterdir()))


def _model_name(spec: str) -> str:
    """general.name: the last word of the spec."""
    name = Path(spec).name
    return name.removesuffix(".gguf") or spec
