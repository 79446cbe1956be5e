"""From a job to a quantized model, through calibration if the job needs it: an artifact, or for this process."""

import weakref
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from qbench.calibration.run import ONE_THREAD, Progress, Run, quantized_model
from qbench.run.work import CalibrationWork
from quant.artifacts import write_artifact
from quant.job import QuantizationJob
from quant.present import present
from quant.quantize import QuantizedSource
from quant.stage import stage_path


def write_quantized(job: QuantizationJob, options: CalibrationWork, how: Run = ONE_THREAD) -> Path:
    """Writes the artifact of a job with an output and returns its path.

    raises   InputError, and leaves nothing half-written
    """
    output = present(job.output)
    output.make_folder()
    folder = stage_path(output.path)
    with quantized_model(job, options, folder, how) as quantized:
        return write_artifact(quantized, how.progress)


def open_quantized(
    job: QuantizationJob, options: CalibrationWork, *, threads: int, progress: Progress | None = None
) -> QuantizedSource:
    """The model as the job makes it; its temporary folder is removed with the model, or when the process ends.

    raises   as `quantized_model`
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="qbench-")))
        model = quantized_model(job, options, folder / "stage", Run(threads, progress=progress))
        quantized = stack.enter_context(model)
        weakref.finalize(quantized, stack.pop_all().close)
    return quantized
