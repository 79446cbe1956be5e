"""From a source to files: which container, and everything that goes into it."""

from pathlib import Path

from quant.artifacts import gguf_writer, hf_writer
from quant.artifacts.atomic import atomic_dir
from quant.artifacts.f32_vectors import F32Vectors
from quant.artifacts.manifest import MANIFEST, build_manifest, manifest_path, write_manifest
from quant.artifacts.progress import Progress
from quant.errors import InputError
from quant.formats import get_format
from quant.quantize import QuantizedSource
from quant.recipes import Recipe
from quant.source import Source


def write_artifact(
    source: Source,
    out: str | Path,
    *,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
) -> Path:
    """Writes the model as `recipe` says, or as it is; returns the path of the artifact.

    A name that ends in .gguf asks for a GGUF file; otherwise the recipe's container decides, and without a recipe
    the formats do. The manifest is written last: an artifact that has one is whole.
    out        the file or directory to make; replaced if it is an artifact, refused if it is something else
    progress   called with bytes done, bytes in all, tensor name
    raises     InputError, and leaves nothing half-written
    """
    out = Path(out)
    container = _container(source, out, recipe)
    if container == "gguf" and out.suffix != ".gguf":
        raise InputError(f"{out}: a GGUF file's name ends in .gguf; write to {out}.gguf")
    original = source
    if recipe is not None:
        source = QuantizedSource(source, recipe.in_container(container))
    if container == "gguf":
        _write_gguf(source, original, out, recipe, progress)
    else:
        _write_hf(source, original, out, recipe, progress)
    return out


def _container(source: Source, out: Path, recipe: Recipe | None) -> str:
    if out.suffix == ".gguf":
        return "gguf"
    if recipe is not None:
        return recipe.container
    float_dtypes = hf_writer.DTYPE_OF_FORMAT
    as_hf = all(
        info.format in float_dtypes or get_format(info.format).gguf_type is None for info in source.tensors.values()
    )
    return "hf" if as_hf else "gguf"


def _write_gguf(source: Source, original: Source, out: Path, recipe: Recipe | None, progress: Progress | None) -> None:
    source = F32Vectors(source)
    # Asked for before `out` is written: it may be the original's own file.
    origin = {"spec": original.spec, "fingerprint": original.fingerprint()}
    hashes = gguf_writer.write_gguf(source, out, name=_model_name(original.spec), progress=progress)
    manifest_path(out).unlink(missing_ok=True)  # an old one speaks of the file that is gone
    write_manifest(manifest_path(out), build_manifest(source, origin, hashes, recipe, "gguf"))


def _write_hf(source: Source, original: Source, out: Path, recipe: Recipe | None, progress: Progress | None) -> None:
    hf_writer.check_formats(source)
    needed_bytes = sum(info.size_bytes for info in source.tensors.values())
    with atomic_dir(out, replaces=_is_artifact_dir, needed_bytes=needed_bytes) as folder:
        hashes = hf_writer.write_hf(source, folder, progress=progress)
        origin = {"spec": original.spec, "fingerprint": original.fingerprint()}
        write_manifest(folder / MANIFEST, build_manifest(source, origin, hashes, recipe, "hf"))


def _is_artifact_dir(path: Path) -> bool:
    """True for what was written here, and for an empty directory."""
    return path.is_dir() and not path.is_symlink() and ((path / MANIFEST).is_file() or not any(path.iterdir()))


def _model_name(spec: str) -> str:
    """general.name: the last word of the spec."""
    name = Path(spec).name
    return name.removesuffix(".gguf") or spec
