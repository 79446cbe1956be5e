"""Path and container of an artifact: decided, or refused, before the work begins."""

from pathlib import Path

from quant.artifacts import gguf_writer, hf_writer
from quant.artifacts.f32_vectors import F32Vectors
from quant.artifacts.gguf_general import file_name
from quant.artifacts.gguf_shard_set import replaceable_shards
from quant.artifacts.gguf_shards import SHARD_NAME, shards_named
from quant.artifacts.hf_reader import HFSource
from quant.artifacts.hf_tokenizer import missing_tokenizer
from quant.artifacts.manifest import MANIFEST, current_manifest
from quant.atomic import check_target
from quant.errors import InputError
from quant.formats import get_format
from quant.job import Output, QuantizationJob, make_job
from quant.recipes import Recipe
from quant.source import Source, SourceView


def make_artifact_job(
    source: Source, recipe: Recipe, out: str | Path | None, max_shard_bytes: int | None = None
) -> QuantizationJob:
    """The job of writing the model to `out`; all that can be refused without reading a tensor is refused here.

    out      None: a preview of an artifact in the recipe's own container
    raises   InputError as `choose_output`, as `make_job`, and for a model that the container cannot hold
    """
    output = None if out is None else choose_output(source, out, recipe, max_shard_bytes)
    job = make_job(source, recipe, output)
    view = SourceView(job.source)
    view.tensors = job.foreseen_tensors()
    if job.container == "gguf":
        if isinstance(source, HFSource) and (hint := missing_tokenizer(source.path)):
            raise InputError(hint)
        gguf_writer.check_gguf(F32Vectors(view), max_shard_bytes)
    else:
        hf_writer.layout_for(view, recipe.packing)
    return job


def choose_output(source: Source, out: str | Path, recipe: Recipe | None, max_shard_bytes: int | None = None) -> Output:
    """The file or directory that `out` means. Nothing is made yet.

    A name that ends in .gguf asks for a GGUF file; otherwise the recipe's container decides, and without a recipe
    the formats do.
    out               replaced if it is an artifact, refused if it is something else. For a GGUF file also the folder
                      to make it in, under the name that GGUF's convention gives it
    max_shard_bytes   of tensors in one GGUF file: NAME.gguf becomes NAME-00001-of-0000N.gguf
    raises            InputError for a path that cannot be written, or a name that a GGUF file cannot have
    """
    path = Path(out)
    container = container_of(source, path, recipe)
    if container != "gguf":
        if max_shard_bytes is not None:
            raise InputError(f"{path}: shards of a given size are for GGUF files; write to a name that ends in .gguf")
        check_target(path, is_artifact_dir)
        return Output(path, container)
    if path.suffix == ".gguf":
        return _checked(Output(path, container, max_shard_bytes))
    makes_folder = str(out).endswith("/") and not path.is_dir()
    if not path.is_dir() and not makes_folder:
        better = path.with_suffix(".gguf") if path.suffix == ".safetensors" else f"{path}.gguf"
        raise InputError(f"{path}: a GGUF file's name ends in .gguf; write to {better}")
    return _checked(Output(path / file_name(source, recipe), container, max_shard_bytes, makes_folder))


def _checked(output: Output) -> Output:
    """The output of a GGUF file. raises InputError if it cannot be written"""
    path = output.path
    match = SHARD_NAME.fullmatch(path.name)
    if match is not None:
        raise InputError(f"{path} is the name of one shard of several; write to {match['stem']}.gguf")
    if output.makes_folder:
        check_target(path.parent, lambda _: False)
        return output
    check_target(path, gguf_writer.is_gguf)
    if output.max_shard_bytes is not None:
        replaceable_shards(path)
    return output


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


def default_output(source: Source, recipe: Recipe) -> Path:
    """The path that a model gets by default: GGUF's convention, or NAME-RECIPE for a directory.

    raises   InputError for a GGUF file of that name that has no manifest: it may have been downloaded
    """
    if recipe.container == "gguf":
        path = Path(file_name(source, recipe))
        if path.exists() and not current_manifest(path).is_file():
            raise InputError(f"{path} exists, and no manifest says that qbench wrote it; give -o to replace it")
        return path
    return Path(f"{Path(source.spec.split(':')[-1]).name.removesuffix('.gguf')}-{recipe.name}")


def artifact_name(stem: str, recipe: Recipe) -> str:
    """A name that asks for the recipe's own container."""
    return f"{stem}.gguf" if recipe.container == "gguf" else stem


def replaced_files(output: Output) -> list[Path]:
    """The existing files or directory that writing to the output would replace."""
    if output.max_shard_bytes is not None:
        return shards_named(output.path)
    return [output.path] if output.path.exists() else []


def own_files(source: Source) -> set[Path]:
    """The files that hold the model; empty for a model that no file holds."""
    return {getattr(source, "path", None), *getattr(source, "paths", ())} - {None}


def is_artifact_dir(path: Path) -> bool:
    """True for a directory that was written here, and for an empty one."""
    return path.is_dir() and not path.is_symlink() and ((path / MANIFEST).is_file() or not any(path.iterdir()))
