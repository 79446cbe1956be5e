"""From a job to an artifact, through calibration if the job needs it."""

from pathlib import Path

from qbench.calibration.options import CalibrationOptions
from qbench.calibration.run import ONE_THREAD, Run, quantized_model
from quant.artifacts import write_artifact
from quant.job import QuantizationJob
from quant.present import present
from quant.stage import stage_path


def write_quantized(job: QuantizationJob, options: CalibrationOptions, how: Run = ONE_THREAD) -> Path:
    """Writes the artifact of a job with an output and returns its path.

    raises   InputError, and leaves nothing half-written
    """
    output = present(job.output)
    output.make_folder()
    folder = stage_path(output.path)
    with quantized_model(job, options, folder, how) as quantized:
        return write_artifact(quantized, how.progress)
