"""`Breakdown`: the time of one decode step by part."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from qbench.measure.metrics import Facts
from quant.json_data import JsonData

KERNELS = ("products", "attention")  # the parts that a decode step is for


@dataclass(frozen=True, slots=True)
class PartTime(JsonData):
    """One part of a step.

    seconds   per step
    share     of the step
    """

    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class Breakdown(JsonData):
    """Where the time of a decode step goes: the mean over the faster half of the steps, which others disturbed least.

    clock           wall, or cpu: the time that the calling thread was on a processor
    depth           tokens in the cache before the first step
    steps           that were timed; `counted` of them count
    step_s          seconds of a step
    parts           as `cpu_kernels.timeline` names them; they sum to the step
    outside_share   share of the step outside products and attention
    page_faults     per step
    huge_page_share of this process's anonymous memory, in pages of 2 MiB: fewer page walks; None: unknown
    load            average number of running processes of the last minute, before and after
    """

    json_flat: ClassVar[tuple[str, ...]] = ("facts",)

    facts: Facts
    clock: str
    depth: int
    steps: int
    counted: int
    step_s: float
    parts: Mapping[str, PartTime]
    outside_share: float
    page_faults: float
    huge_page_share: float | None
    load: list[float]
