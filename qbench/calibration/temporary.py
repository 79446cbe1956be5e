"""A quantized model for this process alone, its layers in a folder that goes with it."""

import weakref
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from qbench.calibration.run import Progress, Run, quantized_model
from qbench.run.work import CalibrationWork
from quant.job import QuantizationJob
from quant.quantize import QuantizedSource


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
