"""quantized_once: a calibrated model for all ranks of a host, quantized by rank 0 alone."""

from pathlib import Path

from qbench.calibration.temporary import open_quantized
from qbench.progress import Progress
from qbench.run.work import CalibrationWork
from qbench.runtime.parallel import joined_ranks
from quant.job import QuantizationJob
from quant.present import present
from quant.quantize import QuantizedSource
from quant.stage import read_stage


def quantized_once(
    job: QuantizationJob, options: CalibrationWork, *, threads: int, progress: Progress | None = None
) -> QuantizedSource:
    """As `open_quantized`. The others wait for rank 0, and read the layers from its folder while it has the model.

    A rank that does not see the folder, because it is on another host, quantizes by itself.
    """
    meeting, folder, source = joined_ranks().meeting, "", None
    if meeting.rank == 0 or not job.needs_calibration:
        source = open_quantized(job, options, threads=threads, progress=progress)
    if not job.needs_calibration:
        return present(source)
    if source is not None:
        folder = str(present(source.stage).folder)
    seen = Path(meeting.tell("quantized", folder)[0])
    if source is None and seen.is_dir():
        return QuantizedSource(job, read_stage(seen))
    return source or open_quantized(job, options, threads=threads, progress=progress)
