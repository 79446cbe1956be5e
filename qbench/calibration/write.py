"""From a source and a recipe to an artifact, through calibration where the recipe needs it."""

from pathlib import Path

from qbench.calibration.options import CalibrationOptions
from qbench.calibration.run import Progress, quantized_model
from quant.artifacts import write_artifact
from quant.artifacts.write import container_of, prepare_output
from quant.recipes import Recipe
from quant.source import Source
from quant.stage import stage_path


def write_quantized(
    source: Source,
    out: str | Path,
    recipe: Recipe,
    options: CalibrationOptions,
    *,
    threads: int = 1,
    resume: bool = False,
    progress: Progress | None = None,
    max_shard_bytes: int | None = None,
) -> Path:
    """Writes the artifact and returns its path; a run that was killed continues with `resume`.

    raises   InputError, and leaves nothing half-written
    """
    path = prepare_output(source, out, recipe)
    fitting = recipe.in_container(container_of(source, path, recipe))
    folder = stage_path(path)
    with quantized_model(
        source, fitting, options, folder, threads=threads, resume=resume, progress=progress
    ) as quantized:
        return write_artifact(
            source,
            path,
            recipe=recipe,
            progress=progress,
            max_shard_bytes=max_shard_bytes,
            stage=quantized.stage,
        )
