"""A model under test, quantized now if a recipe is given."""

from qbench.calibration.options import CalibrationOptions
from qbench.calibration.temporary import open_quantized
from qbench.devices import CPU, check_device
from qbench.measure.host.machine import available_cores
from qbench.measure.subject import Subject
from qbench.measure.watched_source import WatchedSource
from qbench.products import AUTO, check_products
from qbench.progress import Progress
from qbench.sources import open_source
from qbench.threads import check_threads
from quant.job import make_job
from quant.kv import get_kv_format
from quant.kv.source import KVSource
from quant.recipes import get_recipe


def open_subject(
    spec: str,
    recipe: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    *,
    kv: str | None = None,
    products: str = AUTO,
    device: str = CPU,
) -> Subject:
    """The model, and where a recipe is given quantized by it now, calibrated by default where its method needs that.

    kv       KV format to run with instead of the model's own
    products how its weights are to be multiplied, one of qbench.products
    device   where it is to run, one of qbench.devices
    raises   InputError for a spec, recipe, KV format, products or device that are unknown or not here, and for a number
             of threads that cannot run
    """
    check_threads(threads)
    check_products(products)
    check_device(device, products)
    threads = threads or available_cores()
    source = open_source(spec)
    if recipe is not None:
        job = make_job(source, get_recipe(recipe))
        source = open_quantized(job, CalibrationOptions(), threads=threads, progress=progress)
    if kv is not None:
        source = KVSource(source, get_kv_format(kv))
    if progress is not None:
        source = WatchedSource(source, progress)
    return Subject(spec, recipe, source, threads, products, device)
