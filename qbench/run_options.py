"""`RunOptions`: how a model is run, from the command line and the suites to the loaded model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from qbench.cache_kinds import DYNAMIC, parse_kind
from qbench.devices import CPU, check_device_name
from qbench.products import AUTO, check_products
from qbench.threads import check_threads
from quant.json_data import JsonData


@dataclass(frozen=True, slots=True)
class RunOptions(JsonData):
    """What is asked for; a model that cannot do it is refused when it is loaded.

    recipe     quantize the model by this recipe while it loads; None: as it is stored
    kv_format  format of the KV cache; None: the model's own
    cache      layout and window of the KV cache, as qbench.cache_kinds has it
    compute    precision of the matmuls, one of qbench.products
    device     where the model runs, one of qbench.devices
    threads    of torch and the kernels; None: every core
    """

    json_keys: ClassVar[Mapping[str, str]] = {"kv_format": "kv", "cache": "cache_kind", "compute": "products"}

    recipe: str | None = None
    kv_format: str | None = None
    cache: str = DYNAMIC
    compute: str = AUTO
    device: str = CPU
    threads: int | None = None

    def __post_init__(self) -> None:
        parse_kind(self.cache)
        check_products(self.compute)
        check_device_name(self.device)
        check_threads(self.threads)

    def with_threads(self, threads: int | None) -> Self:
        return replace(self, threads=threads)


DEFAULTS = RunOptions()
