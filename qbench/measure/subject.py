"""What is measured: a source, as stored or as a recipe would make it, and the facts that every result repeats."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.devices import CPU
from qbench.measure.host.commit import code_version
from qbench.measure.host.forced import forced
from qbench.measure.host.machine import machine
from qbench.measure.host.placement import placement
from qbench.products import AUTO
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
