"""From a job to an artifact, through calibration if the job needs it."""

from pathlib import Path

from qbench.calibration.options import CalibrationOptions
from qbench.calibration.run import Progress, quantized_model
from quant.artifacts import write_artifact
from quant.job import QuantizationJob
from quant.present import present
from quant.stage import stage_path


def write_quantized(
    job: QuantizationJob,
    options: CalibrationOptions,
    *,
    threads: int = 1,
    resume: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Writes the artifact of a job with an output and returns its path; `resume` continues a run that was killed.

    raises   InputError, and leaves nothing half-written
    """
    output = present(job.output)
    output.make_folder()
    folder = stage_path(output.path)
    with quantized_model(job, options, folder, threads=threads, resume=resume, progress=progress) as quantized:
        return write_artifact(quantized, progress)
