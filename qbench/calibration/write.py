"""From a job to an artifact, through calibration if the job needs it."""

from pathlib import Path

from qbench.calibration.run import ONE_THREAD, Run, quantized_model
from qbench.run.work import CalibrationWork
from quant.artifacts import write_artifact
from quant.job import QuantizationJob
from quant.present import present
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
