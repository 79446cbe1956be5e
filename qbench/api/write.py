"""`quantize`: a model written as a recipe says."""

from pathlib import Path

from qbench.calibration.run import Run
from qbench.calibration.write import write_quantized
from qbench.measure.host.machine import available_cores
from qbench.progress import progress_bar
from qbench.run.choices import set_threads
from qbench.run.work import CalibrationWork
from qbench.sources import open_source
from quant.artifacts import make_artifact_job
from quant.artifacts.output import default_output
from quant.recipes import get_recipe


def quantize(
    model: str,
    recipe: str,
    output: str | Path | None = None,
    *,
    calibration: CalibrationWork | str | None = None,
    best: bool = False,
    resume: bool = False,
    threads: int | None = None,
) -> Path:
    """Write a quantized model, and return its path.

    output       a .gguf file or a directory; None: the conventional name, in the current folder
    calibration  a text file, `hf:DATASET`, `generated`, or all options; None: the text of a reference model
    best         search longer for the codes of each tensor
    resume       continue a run that was killed
    raises       InputError, and leaves nothing half-written
    """
    source, chosen = open_source(str(model)), get_recipe(recipe)
    chosen = chosen.with_options(effort="best") if best else chosen
    job = make_artifact_job(source, chosen, output or default_output(source, chosen))
    options = CalibrationWork(text=calibration) if isinstance(calibration, str) else calibration
    count = threads or available_cores()
    set_threads(count)
    with progress_bar(f"quantize {model} as {recipe}") as update:
        return write_quantized(job, options or CalibrationWork(), Run(count, resume, update))
