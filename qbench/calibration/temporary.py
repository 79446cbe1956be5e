"""A quantized model for this process alone, its layers in a folder that goes with it."""

import weakref
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from qbench.calibration.options import CalibrationOptions
from qbench.calibration.run import Progress, quantized_model
from quant.quantize import QuantizedSource
from quant.recipes import Recipe
from quant.source import Source


def open_quantized(
    source: Source, recipe: Recipe, options: CalibrationOptions, *, threads: int, progress: Progress | None = None
) -> QuantizedSource:
    """The model as the recipe makes it; what it reads from is removed when the model is, or the process ends.

    raises   as `quantized_model`
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="qbench-")))
        model = quantized_model(source, recipe, options, folder / "stage", threads=threads, progress=progress)
        quantized = stack.enter_context(model)
        weakref.finalize(quantized, stack.pop_all().close)
    return quantized
