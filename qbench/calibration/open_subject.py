"""A model under test, quantized now if a recipe is given; loading it shows a bar."""

import sys
from collections.abc import Callable, Iterator

from qbench.calibration.write import open_quantized
from qbench.measure.host.machine import available_cores
from qbench.measure.subject import Subject
from qbench.measure.tuning import tuned
from qbench.progress import Progress
from qbench.run.choices import CPU, check_device
from qbench.run.options import DEFAULTS, RunOptions
from qbench.run.work import CalibrationWork
from qbench.runtime.cache_suits import check_source
from qbench.sources import open_source
from quant.errors import InputError
from quant.job import make_job
from quant.kv.source import KVSource
from quant.kv_names import FLOAT32
from quant.qtensor import QTensor
from quant.quantize import QuantizedSource
from quant.recipes import get_recipe
from quant.source import SameWeights, Source


def open_subject(
    spec: str,
    options: RunOptions = DEFAULTS,
    progress: Progress | None = None,
    quantize: Callable[..., QuantizedSource] = open_quantized,
) -> Subject:
    """The model, quantized now if the options name a recipe, calibrated by default if its method needs that.

    Warnings of the job go to stderr.

    quantize  takes the arguments of `open_quantized`
    raises   InputError for a spec, recipe or KV format that is unknown, for attention that the model cannot have, and
             for a device that is not here or cannot compute so
    """
    check_device(options.device, options.compute)
    table = tuned()
    threads = options.threads or (table and table.threads) or available_cores()
    source = open_source(spec)
    as_kept = with_kv_format(source, options.kv_format, options.device)
    check_source(as_kept, options.cache_spec, options.attention)
    if options.recipe is not None:
        job = make_job(source, get_recipe(options.recipe))
        for warning in job.warnings():
            print(f"warning: {warning}", file=sys.stderr)
        source = quantize(job, CalibrationWork(), threads=threads, progress=progress)
    source = with_kv_format(source, options.kv_format, options.device)
    if progress is not None:
        source = WatchedSource(source, progress)
    return Subject(spec, source, options.with_threads(threads))


def with_kv_format(source: Source, kv_format: str | None, device: str) -> Source:
    """`source` with keys and values in this format; None: in the source's own.

    raises   InputError for a format that is unknown, does not fit the model, or is not on the device
    """
    if kv_format is None:
        return source
    if kv_format == FLOAT32 and device != CPU:
        raise InputError(
            f"KV format {FLOAT32} is on the CPU alone; device {device} keeps 16 bits, or FP8 as calibrated"
        )
    return KVSource(source, kv_format)


class WatchedSource(SameWeights):
    """`source` unchanged; `progress` hears of each tensor read, as tensors done, tensors in all, "loading"."""

    def __init__(self, source: Source, progress: Progress) -> None:
        super().__init__(source)
        self.progress = progress
        self.num_read = 0

    def read(self, name: str) -> QTensor:
        qtensor = super().read(name)
        self._count()
        return qtensor

    def row_blocks(self, name: str, num_rows: int) -> Iterator[QTensor]:
        yield from super().row_blocks(name, num_rows)
        self._count()

    def _count(self) -> None:
        self.num_read += 1
        self.progress(min(self.num_read, len(self.tensors)), len(self.tensors), "loading")
