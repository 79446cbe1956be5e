"""`RunOptions`: how a model is run, from the command line and the suites to the loaded model."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from qbench.options.cache_spec import DENSE, DYNAMIC, FULL, CacheSpec, check_ranked_cache
from qbench.options.choices import (
    CPU,
    FAST,
    KERNEL,
    check_attention,
    check_compute,
    check_device_name,
    check_placement,
    check_threads,
)
from qbench.options.choices import DYNAMIC as DYNAMIC_EXPERTS
from qbench.options.rank_layout import SUM, RankLayout, refuse_on_ranks
from quant.errors import InputError
from quant.json_data import JsonData


@dataclass(frozen=True, slots=True)
class RunOptions(JsonData):
    """The requested options; a model that cannot do them is refused when it is loaded.

    recipe     quantize the model by this recipe while it loads; None: as it is stored
    kv_format  format of the KV cache; None: the model's own
    cache      layout of the KV cache, one of qbench.options.cache_spec.LAYOUTS
    policy     tokens that the KV cache keeps, as qbench.policies names it
    compute    precision of the matmuls, one of qbench.options.choices.PRECISIONS
    device     where the model runs, one of qbench.options.choices.DEVICES
    threads    of torch and the kernels; None: every core
    prefill_chunk  tokens of a prompt that pass at once, at most; None: as many as the cache takes
    attention  the code that computes attention, one of ATTENTIONS; None: the best that the model can have
    prefill    blocks of the attention matrix that a prefill computes, as qbench.prefill names it
    kv_ram     bytes of memory for keys and values, which spill to a disk beyond it; a float is a share of those of the
               whole cache; None: all stay in memory
    kv_disk    bytes of that disk; None: 10 GiB
    memory_bytes  limit of the process's memory; weights that do not fit are read from a file; None: no limit
    expert_placement  experts that stay within it, one of qbench.options.choices.PLACEMENTS
    tp, pp, cut, ep, sp, micro_batches, dispatch  division of the model among ranks; None: as `RankLayout` has them
    """

    # Other checkouts, which the gate times, lack these.
    json_omits: ClassVar[tuple[str, ...]] = (
        "prefill_chunk",
        "attention",
        "prefill",
        "kv_ram",
        "kv_disk",
        "memory_bytes",
        "expert_placement",
        "tp",
        "pp",
        "cut",
        "ep",
        "sp",
        "micro_batches",
        "dispatch",
    )

    recipe: str | None = None
    kv_format: str | None = None
    cache: str = DYNAMIC
    policy: str = FULL
    compute: str = FAST
    device: str = CPU
    threads: int | None = None
    prefill_chunk: int | None = None
    attention: str | None = None
    prefill: str = DENSE
    kv_ram: int | float | None = None
    kv_disk: int | None = None
    memory_bytes: int | None = None
    expert_placement: str = DYNAMIC_EXPERTS
    tp: int | None = None
    pp: int | None = None
    cut: str | None = None
    ep: int | None = None
    sp: int | None = None
    micro_batches: int | None = None
    dispatch: str | None = None

    def __post_init__(self) -> None:
        check_compute(self.compute)
        check_device_name(self.device)
        check_attention(self.attention, self.device, self.cache_spec)  # which checks its own three
        check_threads(self.threads)
        check_placement(self.expert_placement)
        if self.memory_bytes is None and self.expert_placement != DYNAMIC_EXPERTS:
            raise InputError("an expert placement goes with a memory limit; give --memory, or leave it out")
        if self.memory_bytes is not None and (self.recipe is not None or self.device != CPU):
            raise InputError(
                "a memory limit is for a model as it is stored, on the CPU; write it with `qbench quantize`"
            )
        if self.layout.num_ranks > 1:  # which checks the division itself
            self._check_ranks()

    def _check_ranks(self) -> None:
        """raises InputError for options that several ranks do not have yet"""
        refuse_on_ranks(
            {
                "--memory": self.memory_bytes is not None,
                f"--device {self.device}": self.device != CPU,
                f"--attention {self.attention}": (self.sp or 1) > 1 and self.attention not in (None, KERNEL),
            },
            self.layout,
        )
        check_ranked_cache(self.cache_spec, self.layout)

    @property
    def layout(self) -> RankLayout:
        lanes = {"tp": self.tp or 1, "ep": self.ep or 1, "sp": self.sp or 1}
        parts, dispatch = self.micro_batches or 1, self.dispatch or SUM
        return RankLayout(**lanes, pp=self.pp or 1, cut=self.cut or SUM, micro_batches=parts, dispatch=dispatch)

    @property
    def cache_spec(self) -> CacheSpec:
        """raises InputError for a layout and a policy that do not go together"""
        return CacheSpec(self.cache, self.policy, self.prefill_chunk, self.prefill, self.kv_ram, self.kv_disk)

    @property
    def undivided(self) -> Self:
        """The same on one rank"""
        return replace(self, tp=None, pp=None, cut=None, ep=None, sp=None, micro_batches=None, dispatch=None)

    def with_threads(self, threads: int | None) -> Self:
        return replace(self, threads=threads)


DEFAULTS = RunOptions()
