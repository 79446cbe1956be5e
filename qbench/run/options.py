"""`RunOptions`: how a model runs, as the command line, the functions of Python and suites ask for it."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from qbench.run.axes import Setup
from qbench.run.cache_spec import check_cache
from qbench.run.choices import (
    CPU,
    check_compute,
    check_device_name,
    check_placement,
    check_threads,
)
from qbench.run.choices import DYNAMIC as DYNAMIC_EXPERTS
from qbench.run.rank_layout import refuse_on_ranks
from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class RunOptions(Setup):
    """The requested options; a model that cannot do them is refused when it is loaded.

    memory_bytes  limit of the process's memory; weights that do not fit are read from a file; None: no limit
    expert_placement  experts that stay within it, one of `choices.PLACEMENTS`
    raises     InputError for values that no model can have
    """

    json_omits: ClassVar[tuple[str, ...]] = (*Setup.json_omits, "memory_bytes", "expert_placement")

    memory_bytes: int | None = None
    expert_placement: str = DYNAMIC_EXPERTS

    def __post_init__(self) -> None:
        if self.rest:
            raise InputError(f"options of another version: {', '.join(name for name, _ in self.rest)}")
        check_compute(self.compute)
        check_device_name(self.device)
        check_cache(self.cache_spec, self.device, self.attention, self.layout)
        check_threads(self.threads)
        check_placement(self.expert_placement)
        if self.memory_bytes is None and self.expert_placement != DYNAMIC_EXPERTS:
            raise InputError("an expert placement goes with a memory limit; give --memory, or leave it out")
        if self.memory_bytes is not None and (self.recipe is not None or self.device != CPU):
            raise InputError(
                "a memory limit is for a model as it is stored, on the CPU; write it with `qbench quantize`"
            )
        if self.layout.num_ranks > 1:
            refuse_on_ranks({"--memory": self.memory_bytes is not None}, self.layout)

    @property
    def undivided(self) -> Self:
        """The same on one rank"""
        return replace(self, division=None)

    def with_threads(self, threads: int | None) -> Self:
        return replace(self, threads=threads)


DEFAULTS = RunOptions()
