"""What is measured: a source, as stored or as a recipe would make it, and the facts that every result repeats."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.devices import CPU, check_device
from qbench.measure.host.commit import code_version
from qbench.measure.host.forced import forced
from qbench.measure.host.machine import available_cores, machine
from qbench.measure.host.placement import placement
from qbench.measure.watched_source import WatchedSource
from qbench.products import AUTO, check_products
from qbench.progress import Progress
from qbench.threads import check_threads
from quant.kv.scheme import CONFIG_KEY
from quant.sizes import size_summary
from quant.source import Source


@dataclass(frozen=True, slots=True)
class Subject:
    """A model under test."""

    spec: str
    recipe: str | None
    source: Source
    threads: int
    products: str = AUTO  # of qbench.products
    device: str = CPU  # of qbench.devices

    def facts(self, impls: dict[str, str], kernels: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The keys that results of every kind begin with.

        impls     linear -> what runs it
        kernels   what runs beside the linears, of devices that tell it
        """
        return {
            "model": self.spec,
            "recipe": self.recipe,
            "artifact": self.spec if self.recipe is None and Path(self.spec).exists() else None,
            **size_summary(self.source.tensors),
            "kv": kv_name(self.source),
            "products": self.products,
            "impls": summarize_impls(impls),
            **({"kernels": dict(kernels)} if kernels else {}),
            "isa": running_isa(),
            "device": self.device,
            "threads": self.threads,
            "forced": forced(),
            **placement(),
            "machine": machine()["id"],
            **code_version(),
        }


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
    from qbench.sources import open_source

    check_threads(threads)
    check_products(products)
    check_device(device, products)
    threads = threads or available_cores()
    source = open_source(spec)
    if recipe is not None:
        from qbench.calibration.options import CalibrationOptions
        from qbench.calibration.temporary import open_quantized
        from quant.recipes import get_recipe

        source = open_quantized(source, get_recipe(recipe), CalibrationOptions(), threads=threads, progress=progress)
    if kv is not None:
        from quant.kv import get_kv_format
        from quant.kv.source import KVSource

        source = KVSource(source, get_kv_format(kv))
    if progress is not None:
        source = WatchedSource(source, progress)
    return Subject(spec, recipe, source, threads, products, device)


def kv_name(source: Source) -> str | None:
    """The KV format that the source names; None: keys and values are floats."""
    return (source.config.get(CONFIG_KEY) or {}).get("format")


def summarize_impls(impls: dict[str, str]) -> dict[str, int]:
    """Implementation name -> how many linears it runs, the commonest first."""
    names = list(impls.values())
    return {name: names.count(name) for name in sorted(set(names), key=lambda name: (-names.count(name), name))}


def running_isa() -> str:
    """The instruction set that kernels are chosen for: the forced one, else the best that this machine has."""
    import cpu_kernels

    features = cpu_kernels.features()
    return os.environ.get("QBENCH_ISA") or (features[-1] if features else "scalar")
