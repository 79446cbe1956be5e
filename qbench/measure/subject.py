"""The subject of a measurement: a source, as stored or as a recipe would make it, and the facts that every result
repeats.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import cpu_kernels
from qbench.measure.host.commit import code_version
from qbench.measure.host.conditions import forced
from qbench.measure.host.machine import available_cores, machine
from qbench.measure.host.placement import placement
from qbench.measure.metrics import Facts
from qbench.measure.tuning import tuned
from qbench.run.cache_spec import DENSE, FULL
from qbench.run.options import RunOptions
from quant.kv.scheme import CONFIG_KEY
from quant.sizes import size_summary
from quant.source import Source

if TYPE_CHECKING:
    from qbench.runtime.prefill_tally import PrefillTally  # imports torch


@dataclass(frozen=True, slots=True)
class Subject:
    """A model under test."""

    spec: str
    source: Source
    options: RunOptions  # that it was opened with, and is to be loaded with; threads is a number

    @property
    def threads(self) -> int:
        return self.options.threads or available_cores()

    def facts(
        self, impls: Mapping[str, str], kernels: Mapping[str, str] | None = None, tally: "PrefillTally | None" = None
    ) -> Facts:
        """The facts that results of every kind begin with.

        impls     linear -> its implementation
        kernels   the code that runs next to the linears, on devices that report it
        tally     counts of the prefills of the loaded model, if they have a pattern
        """
        recipe, placed, code = self.options.recipe, placement(), code_version()
        size = size_summary(self.source.tensors)
        return Facts(
            model=self.spec,
            recipe=recipe,
            artifact=self.spec if recipe is None and Path(self.spec).exists() else None,
            size_bytes=size.size_bytes,
            num_weights=size.num_weights,
            bits_per_weight=size.bits_per_weight,
            bits_per_weight_by_part=size.bits_per_weight_by_part,
            kv_format=kv_name(self.source),
            policy=None if self.options.policy == FULL else self.options.policy,
            prefill_chunk=self.options.prefill_chunk,
            attention=self.options.attention,
            prefill=None if tally is None or self.options.prefill == DENSE else self.options.prefill,
            prefill_blocks=None if tally is None else tally.mean_blocks,
            prefill_mass=None if tally is None else tally.mean_mass,
            compute=self.options.compute,
            impls=summarize_impls(impls),
            kernels=dict(kernels) if kernels else None,
            isa=running_isa(),
            device=self.options.device,
            threads=self.threads,
            forced=forced(),
            affinity=placed.affinity,
            numa_nodes=placed.numa_nodes,
            machine=machine().id,
            commit=code.commit,
            dirty=code.dirty,
            code=code.code,
            tuning=table.name if (table := tuned()) is not None else None,
        )


def kv_name(source: Source) -> str | None:
    """The KV format that the source names; None: keys and values are floats."""
    return (source.config.get(CONFIG_KEY) or {}).get("format")


def summarize_impls(impls: Mapping[str, str]) -> dict[str, int]:
    """Implementation name -> how many linears it runs, the commonest first."""
    names = list(impls.values())
    return {name: names.count(name) for name in sorted(set(names), key=lambda name: (-names.count(name), name))}


def running_isa() -> str:
    """The instruction set that kernels are chosen for: the forced one, else the best that this machine has."""
    features = cpu_kernels.features()
    return os.environ.get("QBENCH_ISA") or (features[-1] if features else "scalar")
