"""`RunOptions`: how a model is run, from the command line and the suites to the loaded model."""

from dataclasses import dataclass, replace
from typing import Self

from qbench.cache_kinds import DYNAMIC
from qbench.cache_policies import FULL, kind_of
from qbench.compute import FAST, check_compute
from qbench.devices import CPU, check_device_name
from qbench.threads import check_threads
from quant.json_data import JsonData


@dataclass(frozen=True, slots=True)
class RunOptions(JsonData):
    """What is asked for; a model that cannot do it is refused when it is loaded.

    recipe     quantize the model by this recipe while it loads; None: as it is stored
    kv_format  format of the KV cache; None: the model's own
    cache      layout of the KV cache, one of qbench.cache_policies.LAYOUTS
    policy     tokens that the KV cache keeps, as qbench.cache_policies names it
    compute    precision of the matmuls, one of qbench.compute.PRECISIONS
    device     where the model runs, one of qbench.devices
    threads    of torch and the kernels; None: every core
    """

    recipe: str | None = None
    kv_format: str | None = None
    cache: str = DYNAMIC
    policy: str = FULL
    compute: str = FAST
    device: str = CPU
    threads: int | None = None

    def __post_init__(self) -> None:
        kind_of(self.cache, self.policy)
        check_compute(self.compute)
        check_device_name(self.device)
        check_threads(self.threads)

    @property
    def cache_kind(self) -> str:
        """The kind of cache that the runtime builds."""
        return kind_of(self.cache, self.policy)

    def with_threads(self, threads: int | None) -> Self:
        return replace(self, threads=threads)


DEFAULTS = RunOptions()
